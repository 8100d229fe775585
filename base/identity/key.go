// SPDX-License-Identifier: Apache-2.0

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

// Key is this device's private key. It is immutable and safe for concurrent use. Printing or
// logging it shows its ID, never the secret.
type Key struct {
	private ed25519.PrivateKey
	cert    tls.Certificate // carries the public key in TLS; created by each process
}

// Generate returns a new random key.
func Generate() (*Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	return newDeviceKey(private)
}

// newDeviceKey creates the certificate that TLS requires. Peers verify only the key, so all other
// fields are the same for every device and reveal nothing.
func newDeviceKey(private ed25519.PrivateKey) (*Key, error) {
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

// Public returns the public key.
func (k *Key) Public() PublicKey { return PublicKey(k.private.Public().(ed25519.PublicKey)) }

// ID returns the short name of the public key.
func (k *Key) ID() ID { return k.Public().ID() }

// Derive returns a 32-byte secret for a purpose. It is always the same for this key and purpose,
// and reveals nothing about the key or the secrets of other purposes (HKDF-SHA256, RFC 5869).
func (k *Key) Derive(purpose string) ([]byte, error) {
	return hkdf.Key(sha256.New, k.private.Seed(), nil, purpose, 32)
}

// Sign returns a signature of b by this key. b must begin with a context string, so that the
// signature is useless elsewhere.
func (k *Key) Sign(b []byte) (sig [ed25519.SignatureSize]byte) {
	copy(sig[:], ed25519.Sign(k.private, b))
	return sig
}

// Format implements fmt.Formatter for every verb, so that formatting a struct with the key never
// prints the secret.
func (k *Key) Format(s fmt.State, _ rune) {
	if k == nil {
		_, _ = io.WriteString(s, "no device key")
		return
	}
	_, _ = fmt.Fprintf(s, "device key %v", k.ID())
}

// LogValue implements slog.LogValuer as Format does.
func (k *Key) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(k)) }

// MarshalText implements encoding.TextMarshaler as Format does, so that JSON has no secret either.
func (k *Key) MarshalText() ([]byte, error) { return []byte(fmt.Sprint(k)), nil }

// LoadKey reads the key file at path. It rejects a file that others than its owner can read or
// change. Errors are faults of kind NotFound, Permission or Config.
func LoadKey(path string) (*Key, error) {
	f, err := userfile.Open(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fault.New(fault.NotFound, fmt.Errorf("this device has no key: %w", err),
			"make one with `mpbond keygen`")
	case errors.Is(err, os.ErrPermission):
		return nil, fault.New(fault.Permission, err, "run mpbond as the user who made the key")
	case err != nil:
		return nil, err
	}
	defer f.Close()
	if err := checkPrivate(f, 0o077); err != nil { // checks the open file, which cannot be swapped
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile))
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, err)
	}
	key, err := parseKeyFile(data)
	return key, fault.New(fault.Config, prefixError(err, "key file %s", path),
		"restore the file from a backup, or move it away and make a new key with `mpbond keygen`; "+
			"then pair all devices again")
}

// parseKeyFile returns the key in the content of a key file. Errors do not quote it.
func parseKeyFile(data []byte) (*Key, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != pemType {
		return nil, errors.New("no PEM block with a private key found")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the private key is damaged") // the parser's error may quote the key
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, errors.New("the private key is not an Ed25519 key")
	}
	return newDeviceKey(key)
}

// CreateKey generates a key and writes it to a new file at path, creating directories as needed.
// The file appears complete or not at all. An existing file is never changed: the fault is then of
// kind Exists.
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
		return nil, prefixError(err, "key file %s", path)
	}
	defer unlock()
	if _, err := userfile.Lstat(path); err == nil {
		return nil, fault.New(fault.Exists, fmt.Errorf("key file %s already exists", path), "")
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, prefixError(err, "key file %s", path)
	}
	return key, prefixError(writePrivateFile(path, data), "key file %s", path)
}

// LoadOrCreateKey loads the key at path, or creates it if there is none. Several processes may call
// it at once.
func LoadOrCreateKey(path string) (key *Key, created bool, err error) {
	key, err = LoadKey(path)
	if !fault.Is(err, fault.NotFound) {
		return key, false, err
	}
	key, err = CreateKey(path)
	if fault.Is(err, fault.Exists) { // another process was faster
		key, err = LoadKey(path)
		return key, false, err
	}
	return key, err == nil, err
}

// checkPrivate checks that the open file f is a regular file without any of the forbidden
// permissions.
func checkPrivate(f *os.File, forbidden os.FileMode) error {
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fault.New(fault.Config, fmt.Errorf("%s is not a regular file", f.Name()), "")
	}
	if userfile.GrantsOthers(st, forbidden) {
		return fault.New(fault.Permission,
			fmt.Errorf("%s is open to other users (mode %04o)", f.Name(), st.Mode().Perm()),
			fmt.Sprintf("run `chmod 600 %s`; if others may have read or changed it, make a new one", f.Name()))
	}
	return nil
}

// writePrivateFile replaces or creates the file at path with owner-only permissions. The
// directory's lock must be held: the temporary file has a fixed name, and userfile.CreateNew
// removes the one that a killed process has left.
func writePrivateFile(path string, data []byte) error {
	f, err := userfile.CreateNew(path + ".new")
	if err != nil {
		return err
	}
	return userfile.Replace(f, path, data)
}

// prefixError wraps err with a formatted prefix. It returns nil for nil.
func prefixError(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
