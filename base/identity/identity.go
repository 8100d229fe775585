// Package identity says who a device is and whom it trusts. It stands before
// the data path: the roles take from it the TLS configuration of every
// subflow and pipe, and after the handshake ask it whom they talk to.
//
// A device is its Ed25519 key. There are no certificate authorities, names or
// expiry dates to check: a connection is right if the far end proves that it
// holds the very key that was exchanged by pairing, or by hand.
//
//	key.go    the private key and its file
//	trust.go  the file of keys of other devices
//	meet.go   devices that were paired, and their names
//	tls.go    handshakes that check both
package identity

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"

	"mpbond/base/fault"
)

// PublicKey is a device's Ed25519 public key.
type PublicKey [32]byte

// Text form of a public key: keyPrefix, then in base32 (RFC 4648, lower case)
// the 32 bytes of the key and 3 of a checksum. 35 bytes are exactly 56
// characters, so each key has one spelling, and 60 characters in all. One in
// 16 million typos goes unnoticed here and is found by the handshake.
const (
	keyPrefix   = "mpb1"
	checksumLen = 3
	keyTextLen  = len(keyPrefix) + (len(PublicKey{})+checksumLen)*8/5
)

// Labels keep the uses of SHA-256 apart.
const (
	checksumLabel = "mpbond key checksum 1\x00"
	idLabel       = "mpbond device id 1\x00"
)

var base32Text = base32.StdEncoding.WithPadding(base32.NoPadding)

const keyHint = "copy the whole key again, as `mpbond keygen` prints it on the other device"

func (k PublicKey) checksum() []byte {
	sum := sha256.Sum256(append([]byte(checksumLabel), k[:]...))
	return sum[:checksumLen]
}

// String is the text form: 60 lower-case letters and digits, to be pasted.
func (k PublicKey) String() string {
	return keyPrefix + strings.ToLower(base32Text.EncodeToString(append(k[:], k.checksum()...)))
}

// ParsePublicKey reads the text form. Case and surrounding space do not
// matter; everything else, a typo above all, is a fault of kind Config.
func ParsePublicKey(s string) (PublicKey, error) {
	k, err := parseKey(strings.ToLower(strings.TrimSpace(s)))
	return k, fault.New(fault.Config, err, keyHint)
}

func parseKey(s string) (k PublicKey, err error) {
	rest, ok := strings.CutPrefix(s, keyPrefix)
	switch {
	case s == "":
		return k, errors.New("the key is empty")
	case !ok:
		return k, fmt.Errorf("this is no key: keys begin with %q", keyPrefix)
	case len(s) != keyTextLen:
		return k, fmt.Errorf("the key has %d characters instead of %d", len(s), keyTextLen)
	}
	raw, err := base32Text.DecodeString(strings.ToUpper(rest))
	if err != nil {
		return k, errors.New("the key holds a character that no key has (keys use a to z and 2 to 7)")
	}
	n := copy(k[:], raw)
	if !bytes.Equal(raw[n:], k.checksum()) {
		return PublicKey{}, errors.New("the key has a typo: its checksum does not match")
	}
	return k, nil
}

// MarshalText is String.
func (k PublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText is ParsePublicKey.
func (k *PublicKey) UnmarshalText(t []byte) (err error) {
	*k, err = ParsePublicKey(string(t))
	return err
}

// ID is a short name of a key for people to compare: 80 bits of its SHA-256.
// Two devices never share one by chance, and to find a second key for a given
// ID takes 2^80 tries; still, only keys are trusted, never IDs.
type ID [10]byte

// Verify reports whether sig is a signature of b by the key.
func (k PublicKey) Verify(b []byte, sig [ed25519.SignatureSize]byte) bool {
	return ed25519.Verify(k[:], b, sig[:])
}

// ID is the key's short name.
func (k PublicKey) ID() ID {
	sum := sha256.Sum256(append([]byte(idLabel), k[:]...))
	return ID(sum[:len(ID{})])
}

// String is four groups of four, like "K7QF-3M2A-XT5B-Y2JD".
func (id ID) String() string {
	s := base32Text.EncodeToString(id[:])
	return s[:4] + "-" + s[4:8] + "-" + s[8:12] + "-" + s[12:]
}

// MarshalText is String.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }
