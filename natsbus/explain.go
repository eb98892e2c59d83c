package natsbus

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var (
	errSilent = errors.New("no answer in time")
	errFull   = errors.New("the bucket has no room")
)

// Codes of JetStream's answers that the client has no names for.
const (
	codeAccountFull = 10002
	codeNoResources = 10023
	codeNoMemory    = 10028
	codeNoStorage   = 10047
	codeStoreFailed = 10077 // among others: maximum bytes exceeded
	codeWrongLast   = 10071
	codeWrongLast2  = 10164
)

func hasCode(err error, codes ...jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		var je jetstream.JetStreamError
		if !errors.As(err, &je) || je.APIError() == nil {
			return false
		}
		api = je.APIError()
	}
	for _, c := range codes {
		if api.ErrorCode == c {
			return true
		}
	}
	return false
}

// isFull says that the bucket's bound was hit, not the server's.
func isFull(err error) bool {
	return errors.Is(err, errFull) || hasCode(err, codeStoreFailed) && strings.Contains(err.Error(), "maximum")
}

// explain says what was tried where, why it failed, and what helps.
func (c *Conn) explain(what string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("natsbus: %s: %s: %w", c.where, what, err)
	}
	said := c.said(time.Now().Add(-2 * c.cfg.Timeout))
	remedy := ""
	var network net.Error
	switch {
	case denied(err):
		remedy = "check Token, User and Password, NKey or Creds, and what the account may do"
	case errors.Is(err, errSilent) && denied(said), errors.Is(err, nats.ErrTimeout) && denied(said):
		err = fmt.Errorf("%w (%w)", err, said) // a request that is not permitted gets no answer
		remedy = "let the account use $JS.API.>, $JS.ACK.>, $O.>, samebit.bus.> and _INBOX.>"
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount),
		errors.Is(err, nats.ErrNoResponders), hasCode(err, jetstream.JSErrCodeJetStreamNotEnabled, jetstream.JSErrCodeJetStreamNotEnabledForAccount):
		remedy = "JetStream is off: start the server with -js, or enable it for the account"
	case isFull(err):
		remedy = "make the bucket with more MaxBytes, or delete entries"
	case hasCode(err, codeNoStorage, codeNoMemory, codeNoResources, codeAccountFull):
		remedy = "the server reserves no more: lower MaxBytes or Replicas, or raise the account's limits"
	case hasCode(err, codeStoreFailed):
		remedy = "the server cannot write: look at its disk and its log"
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrBucketNotFound):
		remedy = "the bucket was removed: open the store again"
	case errors.Is(err, nats.ErrSecureConnRequired), errors.Is(err, nats.ErrSecureConnWanted):
		remedy = "one side wants TLS and the other does not: check TLS, RootCA and the URL"
	case strings.Contains(err.Error(), "tls:"), strings.Contains(err.Error(), "tls error"), strings.Contains(err.Error(), "x509:"):
		remedy = "check TLS, RootCA, Cert and Key"
	case errors.Is(err, nats.ErrConnectionClosed):
		remedy = "it was closed on this side: open it again"
	case errors.Is(err, errLost), errors.Is(err, errSilent), errors.Is(err, nats.ErrNoServers), errors.Is(err, nats.ErrTimeout), errors.As(err, &network):
		remedy = "is the server running, and is it reached under this address?"
	}
	if remedy == "" {
		return fmt.Errorf("natsbus: %s: %s: %w", c.where, what, err)
	}
	return fmt.Errorf("natsbus: %s: %s: %w; %s", c.where, what, err, remedy)
}

// said is what the server said since then outside of answers, nil for nothing.
func (c *Conn) said(since time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lastAt.Before(since) {
		return nil
	}
	return c.lastErr
}

func denied(err error) bool {
	return errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked) ||
		errors.Is(err, nats.ErrPermissionViolation) || errors.Is(err, nats.ErrAccountAuthExpired)
}
