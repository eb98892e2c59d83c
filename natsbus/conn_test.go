package natsbus

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"samebit/cache/cachetest"
)

// works opens a store, and stores and reads an entry.
func works(t *testing.T, cfg Config) {
	t.Helper()
	bed := cachetest.NewBed(t)
	s := open(t, cfg)
	x := newSample(t, bed, 1, 5, 0)
	put(t, s, x)
	if !has(t, s, bed, x) {
		t.Error("the entry is missing")
	}
	s.Close()
}

// refused expects an error that names the server and has all of the words.
func refused(t *testing.T, cfg Config, words ...string) {
	t.Helper()
	if cfg.Timeout == 0 {
		cfg.Timeout = time.Second
	}
	s, err := Open(ctx, cfg)
	if err == nil {
		s.Close()
		t.Errorf("opened, want an error with %q", words)
		return
	}
	for _, w := range append(words, "natsbus: ", shown(cfg.URL)) {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q, want %q in it", err, w)
		}
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("error %q tells a secret", err)
	}
}

func TestToken(t *testing.T) {
	noLeak(t)
	srv := listen(t, func(o *server.Options) { o.Authorization = "secret" })
	works(t, Config{URL: srv.ClientURL(), Token: "secret"})
	works(t, Config{URL: "nats://secret@" + srv.Addr().String()})
	refused(t, Config{URL: srv.ClientURL()}, "check Token")
	refused(t, Config{URL: srv.ClientURL(), Token: "wrong"}, "check Token")
	refused(t, Config{URL: "nats://secret2@" + srv.Addr().String()}, "check Token")
}

func TestUser(t *testing.T) {
	noLeak(t)
	srv := listen(t, func(o *server.Options) {
		o.Users = []*server.User{
			{Username: "ann", Password: "secret"},
			{Username: "bob", Password: "secret", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"$JS.API.>"}}}},
		}
	})
	works(t, Config{URL: srv.ClientURL(), User: "ann", Password: "secret"})
	works(t, Config{URL: "nats://ann:secret@" + srv.Addr().String()})
	refused(t, Config{URL: srv.ClientURL(), User: "ann", Password: "secret1"}, "check Token, User and Password")
	refused(t, Config{URL: srv.ClientURL(), User: "bob", Password: "secret"}, "$JS.API.>", "bucket samebit")
}

func seed(t *testing.T, make func() (nkeys.KeyPair, error)) (pub string, secret []byte, pair nkeys.KeyPair) {
	t.Helper()
	pair, err := make()
	if err != nil {
		t.Fatal(err)
	}
	if pub, err = pair.PublicKey(); err != nil {
		t.Fatal(err)
	}
	if secret, err = pair.Seed(); err != nil {
		t.Fatal(err)
	}
	return pub, secret, pair
}

func write(t *testing.T, name string, data []byte) string {
	t.Helper()
	name = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestNKey(t *testing.T) {
	noLeak(t)
	pub, secret, _ := seed(t, nkeys.CreateUser)
	_, other, _ := seed(t, nkeys.CreateUser)
	srv := listen(t, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: pub}} })
	works(t, Config{URL: srv.ClientURL(), NKey: write(t, "user.nk", secret)})
	refused(t, Config{URL: srv.ClientURL(), NKey: write(t, "other.nk", other)}, "NKey")
	if _, err := Open(ctx, Config{URL: srv.ClientURL(), NKey: "no such file"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestCreds(t *testing.T) {
	noLeak(t)
	operator, _, operatorKey := seed(t, nkeys.CreateOperator)
	account, _, accountKey := seed(t, nkeys.CreateAccount)
	system, _, _ := seed(t, nkeys.CreateAccount)
	user, secret, _ := seed(t, nkeys.CreateUser)
	encode := func(c interface {
		Encode(nkeys.KeyPair) (string, error)
	}, by nkeys.KeyPair) string {
		s, err := c.Encode(by)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	op := jwt.NewOperatorClaims(operator)
	op.SystemAccount = system
	encode(op, operatorKey)
	acc := jwt.NewAccountClaims(account)
	acc.Limits.JetStreamLimits = jwt.JetStreamLimits{DiskStorage: 16 << 30, MemoryStorage: 1 << 20, Streams: 8, Consumer: 8}
	resolver := &server.MemAccResolver{}
	resolver.Store(account, encode(acc, operatorKey))
	resolver.Store(system, encode(jwt.NewAccountClaims(system), operatorKey))
	creds, err := jwt.FormatUserConfig(encode(jwt.NewUserClaims(user), accountKey), secret)
	if err != nil {
		t.Fatal(err)
	}
	srv := listen(t, func(o *server.Options) {
		o.TrustedOperators, o.AccountResolver, o.SystemAccount = []*jwt.OperatorClaims{op}, resolver, system
	})
	works(t, Config{URL: srv.ClientURL(), Creds: write(t, "user.creds", creds)})
	refused(t, Config{URL: srv.ClientURL()}, "Creds")
	// The account reserves at most 16 GiB.
	refused(t, Config{URL: srv.ClientURL(), Creds: write(t, "user.creds", creds), Bucket: "large", MaxBytes: 1 << 40}, "bucket large", "lower MaxBytes")
}

// certificate returns PEM files with a certificate for 127.0.0.1 that is its own
// authority.
func certificate(t *testing.T) (cert, key string, pair tls.Certificate) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "samebit"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	pk, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pk})
	if pair, err = tls.X509KeyPair(certPEM, keyPEM); err != nil {
		t.Fatal(err)
	}
	return write(t, "cert.pem", certPEM), write(t, "key.pem", keyPEM), pair
}

func TestTLS(t *testing.T) {
	noLeak(t)
	cert, key, pair := certificate(t)
	pool := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(leaf)
	srv := listen(t, func(o *server.Options) {
		o.TLS, o.TLSVerify, o.TLSTimeout = true, true, 5
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	})
	url := "nats://" + srv.Addr().String()
	works(t, Config{URL: url, RootCA: cert, Cert: cert, Key: key})
	works(t, Config{URL: url, TLS: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}})
	refused(t, Config{URL: url}, "RootCA")                   // unknown authority
	refused(t, Config{URL: url, RootCA: cert}, "check TLS")  // no certificate of its own
	refused(t, Config{URL: url, RootCA: "no.pem"}, "no.pem") // no file
	plain := listen(t, nil)                                  // speaks no TLS
	refused(t, Config{URL: plain.ClientURL(), RootCA: cert}, "one side wants TLS")
}

func TestUnreachable(t *testing.T) {
	noLeak(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "nats://" + ln.Addr().String()

	// One that accepts and says nothing: what cancels is the context, or the timeout.
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := Open(short, Config{URL: url}); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 3*time.Second {
		t.Errorf("a deadline: %v after %v", err, time.Since(start))
	}
	refused(t, Config{URL: url, Timeout: 100 * time.Millisecond}, "is the server running")
	ln.Close()
	refused(t, Config{URL: url}, "is the server running")

	off := listen(t, func(o *server.Options) { o.JetStream = false })
	refused(t, Config{URL: off.ClientURL()}, "JetStream is off", "-js")

	done, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := Open(done, Config{Dir: t.TempDir()}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	file := write(t, "file", nil)
	if _, err := Open(ctx, Config{Dir: file}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a folder that is a file: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "jetstream"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(ctx, Config{Dir: dir}); err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a folder that JetStream cannot use: %v", err)
	}
}

func TestConfig(t *testing.T) {
	for want, cfg := range map[string]Config{
		"neither URL nor Dir": {},
		"MaxBytes -1":         {Dir: "d", MaxBytes: -1},
		"Timeout":             {Dir: "d", Timeout: -1},
		"Replicas 9":          {Dir: "d", Replicas: 9},
		"more than one":       {Dir: "d", User: "u", Token: "t"},
		"one of Cert and Key": {Dir: "d", Cert: "c"},
		"letters, digits":     {Dir: "d", Bucket: "a.b"},
	} {
		if _, err := Open(ctx, cfg); err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "natsbus: config: ") {
			t.Errorf("%+v: %v, want %q", cfg, err, want)
		}
	}
	if got := shown("nats://a:secret@h:1, nats://secret@i"); got != "nats://xxxxx@h:1,nats://xxxxx@i" {
		t.Errorf("shown as %s", got)
	}
}
