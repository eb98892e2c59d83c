#!/usr/bin/env python3
"""Writes oracle.json: what jinja2 makes of small templates, with the settings
and extra functions transformers renders chat templates with.

    python3 oracle.py > oracle.json        (jinja2 3.1.6)

Each case is [template, expected text], null where jinja2 fails; all share vars.
"""
import json
import sys

import jinja2
import jinja2.ext
from jinja2.sandbox import SandboxedEnvironment


class Generation(jinja2.ext.Extension):
    """transformers' {% generation %}, which only marks its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        call = self.call_method("_body")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment():
    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", Generation])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    return env


V = {
    "s": "Hello, World", "u": "naïve 你好 😀", "e": "", "n": 7, "neg": -7, "f": 2.5, "t": True, "no": None,
    "l": [3, 1, 2], "words": ["b", "A", "c", "a"], "d": {"z": 1, "a": "two", "m": None},
    "users": [{"name": "Ann", "age": 31, "on": True, "k": {"v": 2}}, {"name": "bob", "age": 25, "on": False, "k": {"v": 1}}, {"name": "Cy", "age": 31}],
    "nested": {"list": [1, 2.5, None, True, {"q": "it's \"q\""}], "empty": {}, "none": []},
    "html": "<a href='x'>\"&\"</a>", "ml": "one\n two\n\nthree", "big": 12345678901234567890, "items_": [["a", 1], ["b", 2]],
}

T = r"""
plain text
{{ s }} {{ n }} {{ f }} {{ t }} {{ no }} {{ missing }} {{ l }} {{ d }} {{ nested }} {{ big }}
{{ 1 + 2 * 3 ** 2 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 % 2 }} {{ 2 ** -1 }} {{ -2 ** 2 }} {{ 2 ** 3 ** 2 }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.0 }} {{ 'a' + 'b' }} {{ 'ab' * 3 }} {{ 2 * 'x' }} {{ [1] + [2] }} {{ [0] * 3 }} {{ (1, 2) + (3,) }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 }} {{ true == 1 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 'a' != 'b' }} {{ [1] == [1] }} {{ {'a': 1} == {'a': 1.0} }}
{{ 'x' in 'xyz' }} {{ 'q' not in 'xyz' }} {{ 2 in l }} {{ 'z' in d }} {{ 'q' in missing }} {{ not 1 in [1] }}
{{ not true or true and false }} {{ 1 and 0 or 'x' }} {{ '' or 'default' }} {{ none and missing }} {{ not not 5 }}
{{ 'yes' if t else 'no' }} {{ 'yes' if no }} {{ 'a' if no else 'b' if no else 'c' }} {{ ('a' if t else 'b') ~ 'c' }}
{{ s[0] }} {{ s[-1] }} {{ s[1:4] }} {{ s[::-1] }} {{ s[::2] }} {{ s[-3:] }} {{ s[:-3] }} {{ s[100:] }} {{ u[6] }} {{ u[::-1] }} {{ s[4:1:-1] }} {{ s[100] }}
{{ l[0] }} {{ l[-1] }} {{ l[::-1] }} {{ l[5] }} {{ l[1:] }} {{ l[:1] }} {{ l[-2:] }} {{ (1,2,3)[::-1] }} {{ range(10)[2:8:3] }} {{ l[5:0:-1] }}
{{ d.z }} {{ d['a'] }} {{ d.q }} {{ d['q'] }} {{ users[0].name }} {{ users[0]['k'].v }} {{ users.0.name }} {{ nested.list[4].q }}
{{ missing.attr }}
{{ missing['x'] }}
{{ missing() }}
{{ missing + 1 }}
{{ no.x }}|{{ no['x'] }}
{{ s.nothing }}|{{ n.nothing }}|{{ s['nothing'] }}
{{ no() }}
{{ 1 / 0 }}
{{ 'a' + 1 }}
{{ 1 < 'a' }}
{{ 5 in 'abc' }}
{{ none in 5 }}
{{ raise_exception('no ' ~ n) }}
{{ s.upper() }} {{ s.lower() }} {{ s.title() }} {{ "they're bill's".title() }} {{ s.capitalize() }} {{ s.swapcase() }}
{{ '  x '.strip() }}|{{ '  x '.lstrip() }}|{{ '  x '.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'abcba'.lstrip('ab') }}|{{ '\n\tq\n'.strip('\n') }}|{{ 'a\n'.rstrip('\n') }}
{{ s.startswith('Hell') }} {{ s.endswith('World') }} {{ s.startswith(('x', 'H')) }} {{ s.endswith('') }}
{{ 'a,b,,c'.split(',') }} {{ ' a  b c '.split() }} {{ 'a b c d'.split(' ', 1) }} {{ ' a  b c '.split(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ''.split() }} {{ ''.split(',') }} {{ ' a b  c '.rsplit(none, 1) }} {{ 'a<x>b<x>c'.split('<x>')[-1] }}
{{ 'a,b'.split('') }}
{{ s.replace('l', 'L') }} {{ s.replace('l', 'L', 1) }} {{ 'abc'.replace('', '-') }} {{ s.find('o') }} {{ s.rfind('o') }} {{ u.find('你') }} {{ s.find('q') }} {{ s.count('l') }} {{ s.index('W') }}
{{ s.index('q') }}
{{ ', '.join(words) }} {{ '-'.join('abc') }} {{ 'k: {} v: {}'.format(1, 'x') }} {{ '{1}{0}'.format('a', 'b') }} {{ '{a}-{b:>5}|{c:<4}|{d:^6}|'.format(a=1, b=2, c='x', d='y') }} {{ '{:.2f} {:05d} {:x} {:,} {:+d} {:e} {:%}'.format(3.14159, 42, 255, 1234567, 5, 12345.678, 0.25) }} {{ '{{}} {}'.format(1) }} {{ '{0[a]} {1.name}'.format(d, users[0]) }}
{{ ', '.join(l) }}
{{ 'abc'.isalpha() }} {{ '12'.isdigit() }} {{ 'a1'.isalnum() }} {{ ' '.isspace() }} {{ 'AB'.isupper() }} {{ 'ab'.islower() }} {{ ''.isdigit() }} {{ 'a b'.partition(' ') }} {{ 'a-b-c'.rpartition('-') }} {{ 'x'.partition('-') }}
{{ '7'.zfill(3) }} {{ '-7'.zfill(4) }} {{ 'a'.ljust(3, '.') }} {{ 'a'.rjust(3, '.') }} {{ 'ab'.center(5, '.') }} {{ 'a'.center(4, '.') }} {{ 'abc'.removeprefix('a') }} {{ 'abc'.removesuffix('c') }} {{ ml.splitlines() }} {{ ml.splitlines(true) }}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %} {{ d.keys()|list }} {{ d.values()|list }} {{ d.get('z') }} {{ d.get('q') }} {{ d.get('q', 'def') }} {{ d.items()|length }}
{{ l|length }} {{ s|length }} {{ u|length }} {{ d|length }} {{ missing|length }} {{ 'abc'|count }}
{{ n|length }}
{{ '  a b '|trim }}| {{ 'xax'|trim('x') }} {{ s|upper }} {{ s|lower }} {{ 'foo bar-baz (qux'|title }} {{ 'hELLO'|capitalize }} {{ s|replace('o', '0') }} {{ s|replace('o', '0', 1) }}
{{ l|first }} {{ l|last }} {{ []|first }} {{ 'abc'|first }} {{ 'abc'|last }} {{ d|first }} {{ l|join('-') }} {{ l|join }} {{ users|join(', ', attribute='name') }} {{ [1, none, true]|join('|') }}
{{ missing|default('x') }} {{ ''|default('x') }} {{ ''|default('x', true) }} {{ none|default('x') }} {{ none|d('x', boolean=true) }} {{ missing|default }} {{ d.q|default(d.z) }}
{{ l|sort }} {{ words|sort }} {{ words|sort(case_sensitive=true) }} {{ l|sort(reverse=true) }} {{ users|sort(attribute='age')|map(attribute='name')|list }} {{ users|sort(attribute='age,name')|map(attribute='name')|list }} {{ words|unique|list }} {{ [1, 1.0, 2, 1]|unique|list }}
{{ l|reverse|list }} {{ 'abc'|reverse }} {{ d|dictsort }} {{ d|dictsort(reverse=true) }} {{ {'b': 1, 'A': 2}|dictsort }} {{ {'b': 1, 'A': 2}|dictsort(true) }} {{ {'b': 1, 'A': 2}|dictsort(by='value') }} {{ d|items|list }} {{ missing|items|list }}
{{ users|map(attribute='name')|list }} {{ users|map(attribute='k.v', default=0)|list }} {{ words|map('upper')|list }} {{ words|map('replace', 'a', 'x')|join(',') }} {{ users|map(attribute='on')|list }}
{{ users|selectattr('on')|map(attribute='name')|list }} {{ users|rejectattr('on')|map(attribute='name')|list }} {{ users|selectattr('age', 'equalto', 31)|map(attribute='name')|list }} {{ users|selectattr('on', 'defined')|list|length }} {{ users|rejectattr('age', '>', 30)|map(attribute='name')|list }} {{ l|select('odd')|list }} {{ l|reject('odd')|list }} {{ [0, 1, '', 'a']|select|list }} {{ users|selectattr('name', 'in', ['Ann', 'Cy'])|map(attribute='name')|join(' ') }}
{{ '42'|int }} {{ 'x'|int }} {{ 'x'|int(5) }} {{ 3.9|int }} {{ '3.9'|int }} {{ '0x1f'|int(base=16) }} {{ '2.5'|float }} {{ 'x'|float }} {{ 3|float }} {{ none|int }} {{ true|int }} {{ '1e3'|float }} {{ ' 12 '|int }}
{{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 2.4|round(method='ceil') }} {{ 2.6|round(method='floor') }} {{ 7|round }} {{ 1234.5|round(-2) }} {{ -3|abs }} {{ -3.5|abs }}
{{ d|tojson }} {{ nested|tojson }} {{ html|tojson }} {{ u|tojson }} {{ u|tojson(ensure_ascii=true) }} {{ u|tojson(ensure_ascii=False) }} {{ s|tojson }} {{ 1.0|tojson }} {{ (1, 2)|tojson }} {{ 1e16|tojson }} {{ big|tojson }}
{{ nested|tojson(indent=2) }}
{{ d|tojson(separators=(',', ':')) }} {{ d|tojson(sort_keys=true) }} {{ []|tojson(indent=2) }} {{ {}|tojson(indent=4) }} {{ [[], {}]|tojson(indent=1) }} {{ {1: 2, true: 3, none: 4}|tojson }}
{{ missing|tojson }}
{{ l|map('upper')|tojson }}
{{ html|e }} {{ html|escape }} {{ html|safe }} {{ 5|string + 'x' }} {{ '%s is %d, %.2f, %5s|%-5s|%05d %x %%'|format('a', 3, 2.0, 'r', 'l', 42, 255) }} {{ '%s' % 'a' }} {{ '%s-%s' % (1, none) }} {{ '%r' % 'q' }}
{{ '<'|safe + '<' }} {{ '<' + '&'|safe }} {{ ('<'|safe) ~ '<' }} {{ '<'|e|e }} {% set x = '<'|safe %}{{ x + '<' }} {{ x }} {{ (x if t else 1) + '>' }} {{ x|length }} {{ x == '<' }} {{ x|tojson }} {{ x in html }} {{ 'a' + x + '"' + x }}
{{ none|selectattr('a')|list }} {{ none|map('upper')|list }} {{ 0|select|list }}
{{ ml|indent }}|{{ ml|indent(2, true) }}|{{ ml|indent(2, blank=true) }}|{{ ml|indent('>>') }}
{{ l|sum }} {{ l|min }} {{ l|max }} {{ users|sum(attribute='age') }} {{ words|min }} {{ 'a b c'|wordcount }} {{ [1,2,3,4,5]|batch(2)|list }} {{ [1,2,3]|batch(2, 0)|list }} {{ 'ab'|center(6) }}|
{% for g, us in users|groupby('age') %}{{ g }}:{{ us|map(attribute='name')|join('+') }} {% endfor %}
{{ s is defined }} {{ missing is defined }} {{ missing is undefined }} {{ no is none }} {{ s is string }} {{ d is mapping }} {{ l is iterable }} {{ s is iterable }} {{ n is iterable }} {{ missing is iterable }} {{ l is sequence }} {{ d is sequence }} {{ s is sequence }} {{ n is sequence }} {{ no is iterable }}
{{ n is number }} {{ t is number }} {{ f is float }} {{ n is integer }} {{ t is integer }} {{ t is boolean }} {{ t is true }} {{ 1 is true }} {{ no is false }} {{ false is false }} {{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(2) }} {{ 'a' is in 'abc' }} {{ 1 is eq 1 }} {{ 1 is equalto(2) }} {{ 'x' is not string }} {{ 2 is gt 1 }} {{ 'ab' is lower }} {{ 'AB' is upper }} {{ no is sameas none }} {{ d.items is callable }}
{{ s is defined and n is defined }} {{ missing is defined or n == 7 }} {{ not missing is defined }} {{ s is string and not s is mapping }} {{ 'a' if missing is defined else 'b' }} {{ (s is string) ~ 'x' }} {{ -3|abs is odd }}
{% if t %}a{% elif n %}b{% else %}c{% endif %}{% if no %}a{% elif n %}b{% else %}c{% endif %}{% if no %}a{% elif no %}b{% else %}c{% endif %}{% if no %}x{% endif %}
{% for x in l %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 }}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ x }}/{{ loop.previtem }}/{{ loop.nextitem }} {% endfor %}
{% for x in [] %}a{% else %}none{% endfor %}{% for x in l if x > 5 %}a{% else %}nothing{% endfor %}{% for x in l if x > 1 %}{{ x }}:{{ loop.length }}{{ ',' if not loop.last }}{% endfor %}
{% for x in 'abc' %}{{ x }}.{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for x in missing %}x{% else %}empty{% endfor %}{% for a, b in items_ %}{{ a }}{{ b }}{% endfor %}{% for (a, b) in items_ %}{{ b }}{% endfor %}{% for i in range(3) %}{{ i }}{% endfor %}{% for i in range(5, 0, -2) %}{{ i }}{% endfor %}
{% for x in none %}{% endfor %}
{% for a, b in l %}{% endfor %}
{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{% if loop.index == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in l %}{% for y in words %}{{ loop.index }}{{ loop.depth }}{% endfor %}{{ loop.index }}{% endfor %}{% for x in l %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}
{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}
{% set ns = namespace(x=0, y='q') %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.z }}{% set ns.new = 5 %}{{ ns.new }}{{ ns['x'] }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set t2 = 1, 2 %}{{ t2 }}{% set p = (3, 4) %}{% set c, e2 = p %}{{ c }}{{ e2 }}
{% set blk %}a{{ n }}b{% endset %}[{{ blk }}]{% set up | upper | trim %} xyz {% endset %}[{{ up }}]
{% if t %}{% set inner = 'seen' %}{% endif %}{{ inner }}{% for i in [1] %}{% set hidden = 1 %}{% endfor %}{{ hidden }}
{% set d2 = {'a': 1} %}{% set ns = namespace(d=d2) %}{{ ns.d.a }}{% set d2.b = 5 %}
{% macro m(a, b=2, c='x') %}[{{ a }},{{ b }},{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(1, c='z') }}{{ m(a=5) }}{{ m() }}{{ m(1)|length }}{{ m(1)|upper }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}
{% macro fact(k) %}{% if k > 1 %}{{ k * (fact(k - 1)|int) }}{% else %}1{% endif %}{% endmacro %}{{ fact(5) }}
{% macro outer(x) %}{% macro inner(y) %}<{{ x }}{{ y }}>{% endmacro %}{{ inner('i') }}{% endmacro %}{{ outer('o') }}
{% set g = 1 %}{% macro m() %}{{ g }}{% set g = 9 %}{{ g }}{% endmacro %}{{ m() }}{{ g }}
{% macro m(k) %}{{ k }}-{{ caller('c') }}{% endmacro %}{% call(z) m('k') %}({{ z }}){% endcall %}
{% filter upper %}abc {{ n }}{% endfilter %} {% filter replace('a', 'b')|trim %}  aaa {% endfilter %}!
{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a }}
{% generation %}answer{{ n }}{% endgeneration %}!
{% raw %}{{ not }} {% this %}{% endraw %} {%- raw -%}  x  {%- endraw -%} y
{# comment #}a{# multi
line #}b {#- c -#} d
{{ [1, 2, 'a', none, true, 1.5, {'k': 'v'}, (1,), ()] }} {{ ["it's", 'say "hi"', "both ' and \""] }} {{ ['\n\t\\', 'é', '😀', '\x00\x7f'] }}
{{ 1e16 }} {{ 1e15 }} {{ 0.0001 }} {{ 0.00001 }} {{ 1.0 }} {{ 100000.0 }} {{ 1e100 }} {{ 0.1 + 0.2 }} {{ 1/3 }} {{ 10 / 2 }} {{ 1_000 }} {{ 0x1f }} {{ 1.5e3 }} {{ -0.0 }}
{{ 'a' 'b' "c" }} {{ 'it\'s' }} {{ "q\"q" }} {{ '\u00e9\x41\101' }} {{ 'a\qb' }} {{ '\\n' }} {{ "tab\there" }}
{{ {'a': {'b': {'c': 1}}}.a.b.c }} {{ {'a': [1, {'b': 2}]}['a'][1].b }} {{ {} }} {{ [] }} {{ () }} {{ (1) }} {{ (1,) }} {{ 1, 2 }} {{ [1, 2,] }} {{ {'a': 1,} }}
{{ range(3) }} {{ range(3)|list }} {{ range(0) | list }} {{ range(3)|length }} {{ range(2)|join(',') }} {{ dict(a=1, b=2) }} {{ dict([('x', 1)]) }} {{ dict({'p': 1}, q=2) }}
{{ range(1000000) }}
{% set l2 = [] %}{% set _ = l2.append(1) %}{{ l2.append(2) }}{{ l2 }}{{ l2.pop() }}{{ l2 }}{% set d3 = {} %}{% set _ = d3.update({'k': 1}) %}{{ d3 }}{{ d3.pop('k') }}{{ d3 }}{{ d3.setdefault('q', 2) }}{{ d3 }}
{{ joiner(', ')() }}{% set j = joiner('|') %}{{ j() }}a{{ j() }}b{{ j() }}c
{{ s|nosuchfilter }}
{{ s is nosuchtest }}
{% nosuchtag %}
{{ 1 +
{{ 'unclosed }}
{% if t %}no end
{% for x in l %}{{ x }}{% endif %}
{{ (1 }}
{{ 1 ] }}
{{ }}
{{ a b }}
{{ users|map(attribute='name')|length }}
{% if users|selectattr('nope') %}generators are true{% endif %}{% if users|selectattr('nope', 'defined')|list %}x{% else %}empty list is false{% endif %}
{% set g = l|map('string') %}{{ g|join }}{{ g|join }}|
{{ l|map('string')|first }} {{ (l|reverse)|first }} {{ s|list|last }} {{ s|first|upper }} {{ s|upper|lower|length }}
{{ 'x' if l else 'y' }} {{ 'x' if {} else 'y' }} {{ 'x' if '' else 'y' }} {{ 'x' if 0.0 else 'y' }} {{ 'x' if range(0) else 'y' }} {{ 'x' if (0,) else 'y' }}
{{ missing == none }} {{ missing == missing2 }} {{ missing != 'a' }} {{ missing ~ 'x' }} {{ [missing] }} {{ missing is sameas missing }}
{{ +5 }} {{ - 5 }} {{ --5 }} {{ -f }} {{ 5 - -5 }} {{ 5--5 }} {{ not -1 }}
{{- 'a' -}}   {{- 'b' }}
{{ s|replace(',', '')|lower|title|trim }} {{ (s ~ n)|upper }} {{ s ~ n|string|upper }} {{ n + 1|int }} {{ [1,2]|length + 1 }} {{ -1|abs }} {{ 2 * 3|string }}
{{ loop }}|{{ true }}{{ True }}{{ none }}{{ None }}{{ false }}
{{ 'a' == 'a' and 'b' != 'c' or missing.x }}
{{ l|sort(attribute='x') }}
{{ words|sort|join(' ') ~ '!' }} {{ 'ß' ~ 'é'|upper }} {{ 'É'|lower }} {{ 'Ǆ'|lower }}
{{ users[:2]|selectattr('k.v', '==', 2)|map(attribute='name')|first }} {{ users|map(attribute='nope')|list }} {{ users|map('length')|list }} {{ users|map(attribute='name')|map('upper')|join('/') }}
{{ n if n is number and n > 5 else 'small' }} {{ d['z'] + l[0] * 2 }} {{ (d.a ~ '!')[::-1] }} {{ d.a[0] ~ d['a'][1:] }}
{{ s.split(', ')[1].lower().startswith('w') }} {{ s.split(',')|map('trim')|list }} {{ (s|trim).strip('H') }}
""".strip("\n").split("\n")

T += [
    "  {% if t %}\n    a\n  {% endif %}\nb\n",
    "  {%- if t %}\n    a\n  {%- endif %}\nb\n\n",
    "x  {% if t %}  \n y {% endif %}  z\n",
    "\t{%+ if t %}\n a\n{% endif +%}\n b",
    "{% for x in l %}\n  {{ x }}\n{% endfor %}\nend",
    "{% for x in l -%}\n  {{ x }}\n{%- endfor %}\nend",
    "a\n  {# c #}\nb\n  {#- c -#}  \n c",
    "  {{ n }}\n  {{- n }}\n  {{ n -}}  \n x",
    "{% set q = 'multi\n  line' %}{{ q }}|",
    "{{ 'multi\r\n  line' }}\r\nx\ry",
    "{% if t %}\n\n\nx{% endif %}\n\n",
    "{%if t%}tight{%endif%}{{n}}{{-n-}}",
    "a {% raw %}\n  {{ x }}\n  {% endraw %}\n b",
    "{#\n  long\n#}\n  {% set a = 1 %}\n  {% set b = 2 -%}\n  \n  {{ a }}{{ b }}\n",
    "{{ {\n 'a': 1,\n 'b': [1,\n 2]\n} | tojson }}\n",
    "{{ {'a': {'b': 1}} }}{{ {'a': {'b': 1}}}}",
    "\n\n{{ n }}\n\n",
    " {% set x = 1 %} {% set y = 2 %}\nz",
    "x\n    {%- set x = 1 -%}    \n  y",
    "{% macro a() %}\n  body\n{% endmacro %}\n{{ a() }}|{{- a() -}}|",
    "{% macro a() -%}\n  body\n{%- endmacro %}\n{{ a() }}|",
    "{% set x %}\n  block\n{% endset %}\n[{{ x }}]",
    "{\n{ n }\n} {n} { % if % } {%- if true -%} { {%- endif -%} }",
    "a\u00a0{%- if t %}\u2003{% endif -%}\u00a0b\x1c{{- n }}",
    "{{ '{{ x }}' }}{{ '%}' }}{% if '%}' %}y{% endif %}{# {{ #}",
    "{",
    "{{",
    "{%",
    "{#",
    "a{% raw %}b",
    "",
    "\n",
    "{% if t %}{# x #}\n  {% if n %}\n  y\n  {% endif %}\n{% endif %}",
    "{%- for m in users %}\n    {%- if loop.first and m.on %}\n        {{- 'first ' }}\n    {%- elif not m.on %}\n        {{- 'off ' + m.name }}\n    {%- else %}\n    {%- endif %}\n{%- endfor %}\n",
]


def main():
    env = environment()
    cases = []
    for text in T:
        try:
            out = env.from_string(text).render(**json.loads(json.dumps(V)))
        except Exception:
            out = None
        cases.append([text, out])
    json.dump({"vars": V, "cases": cases}, sys.stdout, ensure_ascii=False, indent=0)
    print()


if __name__ == "__main__":
    main()
