package jinja

import "math/big"

// test is "v is name(args)".
func (r *renderer) test(name string, v any, a *args) bool {
	a.what = "test " + name
	if need, ok := testArgs(name); !ok {
		r.fail("there is no test named %s", name)
	} else if len(a.pos) != need {
		r.fail("test %s takes %d arguments, not %d", name, need, len(a.pos))
	}
	_, missing := v.(*undef)
	switch name {
	case "defined":
		return !missing
	case "undefined":
		return missing
	case "none":
		return v == nil
	case "string":
		_, ok := v.(string)
		return ok
	case "mapping":
		_, ok := v.(*Map)
		return ok
	case "iterable":
		switch v.(type) {
		case *list, *Map, string, *undef, *loop:
			return true
		}
		return false
	case "sequence":
		switch v := v.(type) {
		case string, *Map, *undef:
			return true
		case *list:
			return v.kind <= kRange
		}
		return false
	case "number":
		_, big := v.(*big.Int)
		_, ok := asFloat(v)
		return ok || big
	case "integer":
		switch v.(type) {
		case int64, *big.Int:
			return true
		}
		return false
	case "float":
		_, ok := v.(float64)
		return ok
	case "boolean":
		_, ok := v.(bool)
		return ok
	case "true":
		return v == true
	case "false":
		return v == false
	case "callable":
		switch v.(type) {
		case *function, *macro:
			return true
		}
		return false
	case "lower", "upper":
		return caseTest(r.str(v), name == "upper")
	case "escaped":
		return false
	case "filter":
		return filterTable(r.str(v)) != nil
	case "test":
		_, ok := testArgs(r.str(v))
		return ok
	case "odd":
		return r.equal(r.arith("%", v, int64(2)), int64(1), 0)
	case "even":
		return r.equal(r.arith("%", v, int64(2)), int64(0), 0)
	case "divisibleby":
		return r.equal(r.arith("%", v, a.pos[0]), int64(0), 0)
	case "sameas":
		return same(v, a.pos[0])
	}
	return r.relation(relationTests(name), v, a.pos[0])
}

// relationTests returns the operator a test stands for, or "".
func relationTests(name string) string {
	switch name {
	case "==", "eq", "equalto":
		return "=="
	case "!=", "ne":
		return "!="
	case "<", "lt", "lessthan":
		return "<"
	case "<=", "le":
		return "<="
	case ">", "gt", "greaterthan":
		return ">"
	case ">=", "ge":
		return ">="
	case "in":
		return "in"
	}
	return ""
}

// testArgs returns how many arguments a test takes, false if there is none of
// that name.
func testArgs(name string) (int, bool) {
	switch name {
	case "defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer", "float", "boolean",
		"true", "false", "callable", "lower", "upper", "escaped", "filter", "test", "odd", "even":
		return 0, true
	case "divisibleby", "sameas":
		return 1, true
	}
	return 1, relationTests(name) != ""
}

// same is Python's "is" as far as values here have an identity.
func same(a, b any) bool {
	switch a.(type) {
	case nil, bool, string, int64, float64, *list, *Map, *namespace, *macro:
		return a == b
	}
	return false
}
