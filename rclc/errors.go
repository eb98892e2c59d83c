package rclc

import (
	"errors"
	"fmt"
	"strings"
)

// Causes, for errors.Is. The text of an error names the numbers and the remedy;
// [Code] gives a short name.
var (
	// ErrOption is the cause when options contradict each other or are out of range.
	ErrOption = errors.New("bad option")
	// ErrRequest is the cause when a request cannot be encoded.
	ErrRequest = errors.New("bad request")
	// ErrBudget is the cause when a budget cannot hold what must be kept.
	ErrBudget = errors.New("budget too small")
	// ErrReceiverFull is the cause when a receiver has no room; see [FitError].
	ErrReceiverFull = errors.New("receiver has no room")
	// ErrSelection is the cause when a selector fails or returns no valid selection.
	ErrSelection = errors.New("bad selection")
	// ErrContext is the cause when rows do not fit the model's context.
	ErrContext = errors.New("beyond the model's context")
	// ErrState is the cause when a sender's rows, counts or snapshot do not agree.
	ErrState = errors.New("invalid sender")
	// ErrPending is the cause when an agent has inputs that were not recorded yet.
	ErrPending = errors.New("inputs are pending")
	// ErrIncompatible is the cause when sender and receiver have different models.
	ErrIncompatible = errors.New("incompatible models")
	// ErrSnapshot is the cause when a snapshot file is damaged or of another model.
	ErrSnapshot = errors.New("bad snapshot")
	// ErrEmptyQueue is the cause when there is no delivery to take.
	ErrEmptyQueue = errors.New("no delivery is queued")
	// ErrWire is the cause when a message file is damaged or of another model.
	ErrWire = errors.New("bad message")
	// ErrReason is the cause when reasoning fails or changes what it must keep.
	ErrReason = errors.New("bad reasoning")
	// ErrMessage is the cause when a message does not fit the receiver's model.
	ErrMessage = errors.New("message does not fit the model")
)

// coded is an error with a cause and a code.
type coded struct {
	cause error
	code  string
	text  string
	err   error // what it wraps, nil for nothing
}

func (e *coded) Error() string { return e.text }
func (e *coded) Code() string  { return e.code }
func (e *coded) Unwrap() []error {
	if e.err == nil {
		return []error{e.cause}
	}
	return []error{e.cause, e.err}
}

// fail makes an error with a cause and a code. A %w in the format is kept as a
// further cause.
func fail(cause error, code, format string, args ...any) error {
	err := fmt.Errorf("rclc: "+format, args...)
	return &coded{cause: cause, code: code, text: once(err.Error()), err: errors.Unwrap(err)}
}

// within says where an error happened.
func within(err error, format string, args ...any) error {
	return &located{text: once("rclc: " + fmt.Sprintf(format, args...) + ": " + err.Error()), err: err}
}

type located struct {
	text string
	err  error
}

func (e *located) Error() string { return e.text }
func (e *located) Unwrap() error { return e.err }

// once leaves the package's name only in front.
func once(text string) string { return strings.ReplaceAll(text, ": rclc: ", ": ") }

// Code returns the short name of an error, such as "budget_below_floor"; "" for
// errors of others and for nil. Codes do not change between versions.
func Code(err error) string {
	var c interface{ Code() string }
	if errors.As(err, &c) {
		return c.Code()
	}
	return ""
}

// FitError says that the smallest messages that senders can make exceed the room of
// a receiver.
type FitError struct {
	Available int // positions that the tightest receiver has
	Needed    int // positions that all senders need at least
	Senders   int
}

func (e *FitError) Error() string {
	return fmt.Sprintf("rclc: the receiver has room for %d positions and the %d senders need at least %d: shorten the prompt, reserve fewer tokens or rows, or send from fewer", e.Available, e.Senders, e.Needed)
}

func (e *FitError) Code() string  { return "receiver_full" }
func (e *FitError) Unwrap() error { return ErrReceiverFull }

// SelectionError says which selection failed.
type SelectionError struct {
	Sender, Request int // their places in the lists
	Err             error
}

func (e *SelectionError) Error() string {
	return once(fmt.Sprintf("rclc: sender %d, request %d: %v", e.Sender, e.Request, e.Err))
}

// Code is that of the reason, "selector" if it has none.
func (e *SelectionError) Code() string {
	return codeOr(e.Err, "selector")
}

func (e *SelectionError) Unwrap() []error { return []error{ErrSelection, e.Err} }

// plain is the text of an error without this package's name in front.
func plain(err error) string {
	const name = "rclc: "
	if s := err.Error(); len(s) > len(name) && s[:len(name)] == name {
		return s[len(name):]
	}
	return err.Error()
}
