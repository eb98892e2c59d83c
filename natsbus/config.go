package natsbus

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// Config says where the server is and what is asked of it. A Config with a Dir
// alone is enough for one machine, one with a URL alone for several.
type Config struct {
	// URL of a server, nats://host:4222 or tls://host:4222, or several of one
	// cluster with commas between. Empty means a server inside this process, which
	// opens no port.
	URL string
	// Dir is where the server inside this process keeps its data; one process at a
	// time may have it. It is not used when there is a URL.
	Dir string

	// At most one way to say who we are. User and Password may stand in the URL.
	Token          string
	User, Password string
	NKey           string // file with a seed
	Creds          string // file with a JWT and a seed, as nsc writes it

	// TLS, if set, or any of the files, demands an encrypted connection.
	TLS       *tls.Config
	RootCA    string // file with the certificates of authorities, PEM
	Cert, Key string // files with the client's own certificate, PEM

	// Bucket of the object store; "samebit" when empty. It is made if it is missing.
	Bucket string
	// MaxBytes bounds a bucket that is made, 0 meaning 8 GiB. A bucket of an outside
	// server keeps the bound that it has, the same for all who share it; one in Dir
	// gets this bound each time.
	MaxBytes int64
	// Replicas of a bucket that is made, on so many servers of a cluster; 0 means 1.
	Replicas int
	// Timeout of every single answer of the server; 0 means 5 s. A Put or a Get of a
	// large entry takes many.
	Timeout time.Duration

	// Tests put faults between us and the server, and die at named points.
	wrap  func(net.Conn) net.Conn
	fault func(point string)
}

const (
	defaultBucket   = "samebit"
	defaultMaxBytes = 8 << 30
	defaultTimeout  = 5 * time.Second
)

// check fills in the defaults.
func (c Config) check() (Config, error) {
	if c.Bucket == "" {
		c.Bucket = defaultBucket
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = defaultMaxBytes
	}
	if c.Timeout == 0 {
		c.Timeout = defaultTimeout
	}
	if c.Replicas == 0 {
		c.Replicas = 1
	}
	ways := 0
	for _, s := range []string{c.Token, c.User, c.NKey, c.Creds} {
		if s != "" {
			ways++
		}
	}
	var err error
	switch {
	case c.URL == "" && c.Dir == "":
		err = errors.New("neither URL nor Dir: give the URL of a server, or a folder for one inside this process")
	case c.MaxBytes < 0:
		err = fmt.Errorf("bound MaxBytes %d: want a positive one, or 0 for 8 GiB", c.MaxBytes)
	case c.Timeout < 0:
		err = fmt.Errorf("duration of Timeout %v: want a positive one, or 0 for %v", c.Timeout, defaultTimeout)
	case c.Replicas < 0 || c.Replicas > 5:
		err = fmt.Errorf("number of Replicas %d: want 1 to 5, or 0 for 1", c.Replicas)
	case ways > 1:
		err = errors.New("more than one of Token, User, NKey and Creds: give one")
	case (c.Cert == "") != (c.Key == ""):
		err = errors.New("one of Cert and Key without the other")
	case strings.ContainsFunc(c.Bucket, func(r rune) bool { return !bucketRune(r) }):
		err = fmt.Errorf("name of Bucket %.60q: want letters, digits, - and _", c.Bucket)
	}
	if err != nil {
		return c, fmt.Errorf("natsbus: config: %w", err)
	}
	return c, nil
}

func bucketRune(r rune) bool {
	return r == '-' || r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// auth is what the config says about identity and encryption, as options.
func (c Config) auth() ([]nats.Option, error) {
	var o []nats.Option
	switch {
	case c.Token != "":
		o = append(o, nats.Token(c.Token))
	case c.User != "":
		o = append(o, nats.UserInfo(c.User, c.Password))
	case c.NKey != "":
		key, err := nats.NkeyOptionFromSeed(c.NKey)
		if err != nil {
			return nil, fmt.Errorf("natsbus: reading NKey file %s: %w", c.NKey, err)
		}
		o = append(o, key)
	case c.Creds != "":
		o = append(o, nats.UserCredentials(c.Creds))
	}
	if c.TLS != nil {
		o = append(o, nats.Secure(c.TLS.Clone()))
	}
	if c.RootCA != "" {
		o = append(o, nats.RootCAs(c.RootCA))
	}
	if c.Cert != "" {
		o = append(o, nats.ClientCert(c.Cert, c.Key))
	}
	return o, nil
}

// shown is a list of URLs without their secrets.
func shown(urls string) string {
	l := strings.Split(urls, ",")
	for i, s := range l {
		u, err := url.Parse(strings.TrimSpace(s))
		if err != nil {
			l[i] = "(unreadable URL)"
			continue
		}
		if u.User != nil {
			u.User = url.User("xxxxx") // a lone user is a token
		}
		l[i] = u.String()
	}
	return strings.Join(l, ",")
}
