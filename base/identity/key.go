package identity

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"time"

	"mpbond/base/fault"
	"mpbond/base/userfile"
)

const (
	pemType    = "PRIVATE KEY" // PKCS #8 (RFC 5958)
	maxKeyFile = 16 << 10
)

// Key is this device's private key. It is immutable and safe for concurrent
// use. Printing or logging one shows its ID, never the secret.
type Key struct {
	private ed25519.PrivateKey
	cert    tls.Certificate // carries the public key in TLS; made anew for each process
}

// Generate draws a new key.
func Generate() (*Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return newKey(private)
}

// newKey makes the certificate that TLS wants around a key. The far end looks
// at the key alone, so the other fields are the same for every device and tell
// nothing about it.
func newKey(private ed25519.PrivateKey) (*Key, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "mpbond"},
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC), // "no expiry", RFC 5280 4.1.2.5
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		return nil, fmt.Errorf("certificate of the device key: %w", err)
	}
	return &Key{private, tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}}, nil
}

// Public is the key's public half.
func (k *Key) Public() PublicKey { return PublicKey(k.private.Public().(ed25519.PublicKey)) }

// ID is the short name of the public half.
func (k *Key) ID() ID { return k.Public().ID() }

// Derive returns 32 bytes that are always the same for this key and purpose, that
// nobody else knows, and that tell nothing of the key nor of those of another purpose
// (HKDF-SHA256, RFC 5869).
func (k *Key) Derive(purpose string) ([]byte, error) {
	return hkdf.Key(sha256.New, k.private.Seed(), nil, purpose, 32)
}

// Sign returns a signature of b by this key. What is signed begins with a context of its
// own, so that it is of no use in another place.
func (k *Key) Sign(b []byte) (sig [ed25519.SignatureSize]byte) {
	copy(sig[:], ed25519.Sign(k.private, b))
	return sig
}

// Format implements fmt.Formatter for every verb, so that no %v or %+v of a
// struct that holds the key prints the secret.
func (k *Key) Format(s fmt.State, _ rune) {
	if k == nil {
		_, _ = io.WriteString(s, "no device key")
		return
	}
	_, _ = fmt.Fprintf(s, "device key %v", k.ID())
}

// LogValue implements slog.LogValuer as Format does.
func (k *Key) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(k)) }

// MarshalText implements encoding.TextMarshaler as Format does: JSON shows no
// secret either.
func (k *Key) MarshalText() ([]byte, error) { return []byte(fmt.Sprint(k)), nil }

// LoadKey reads the key file at path. It refuses one that others than its
// owner can read or change. Errors are faults: NotFound, Permission, Config.
func LoadKey(path string) (*Key, error) {
	f, err := userfile.Open(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fault.New(fault.NotFound, fmt.Errorf("this device has no key: %w", err), "make one with `mpbond keygen`")
	case errors.Is(err, os.ErrPermission):
		return nil, fault.New(fault.Permission, err, "run mpbond as the user who made the key")
	case err != nil:
		return nil, err
	}
	defer f.Close()
	if err := checkPrivate(f, 0o077); err != nil { // of the open file, so that it cannot be swapped in between
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, err)
	}
	key, err := parseKeyFile(data)
	return key, fault.New(fault.Config, wrapError(err, "key file %s", path),
		"restore the file from a copy, or move it away and make a new key with `mpbond keygen`: all devices must then be paired again")
}

func parseKeyFile(data []byte) (*Key, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != pemType {
		return nil, errors.New("no PEM block of a private key in it")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("damaged") // the parser's text may quote the key
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("holds another kind of key than Ed25519")
	}
	return newKey(key)
}

// CreateKey draws a key and writes it to a new file at path, with directories
// as needed. The file appears complete or not at all; one that is there
// already is never touched: the fault is then of kind Exists.
func CreateKey(path string) (*Key, error) {
	key, err := Generate()
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key.private)
	if err != nil {
		return nil, err
	}
	data := pem.EncodeToMemory(&pem.Block{Type: pemType, Bytes: der})
	unlock, err := userfile.LockDir(filepath.Dir(path))
	if err != nil {
		return nil, wrapError(err, "key file %s", path)
	}
	defer unlock()
	if _, err := userfile.Lstat(path); err == nil {
		return nil, fault.New(fault.Exists, fmt.Errorf("key file %s is already there", path), "")
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, wrapError(err, "key file %s", path)
	}
	return key, wrapError(writeFile(path, data), "key file %s", path)
}

// LoadOrCreateKey loads the key at path, or creates it if there is none, also
// when several processes try that at once.
func LoadOrCreateKey(path string) (key *Key, created bool, err error) {
	key, err = LoadKey(path)
	if !fault.Is(err, fault.NotFound) {
		return key, false, err
	}
	key, err = CreateKey(path)
	if fault.Is(err, fault.Exists) { // another process was quicker
		key, err = LoadKey(path)
		return key, false, err
	}
	return key, err == nil, err
}

// checkPrivate checks that the open file f is a plain file without any of the
// rights in forbidden.
func checkPrivate(f *os.File, forbidden os.FileMode) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fault.New(fault.Config, fmt.Errorf("%s is not a plain file", f.Name()), "")
	}
	if userfile.GrantsOthers(st, forbidden) {
		return fault.New(fault.Permission,
			fmt.Errorf("%s is open to other users (mode %04o)", f.Name(), st.Mode().Perm()),
			fmt.Sprintf("run `chmod 600 %s`; if others may have read or changed it, make a new one", f.Name()))
	}
	return nil
}

// writeFile replaces the file at path, or makes it, with owner-only rights. The
// directory's lock is held, so that what a process that was killed left beside it is
// removed by the next one.
func writeFile(path string, data []byte) error {
	f, err := userfile.CreateNew(path + ".new")
	if err != nil {
		return err
	}
	return userfile.Replace(f, path, data)
}

// wrapError is fmt.Errorf with err at the end, and nil for nil.
func wrapError(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
