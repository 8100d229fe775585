// SPDX-License-Identifier: Apache-2.0

// Package identity defines device keys and trust. The roles take from it the TLS configuration of
// every subflow and pipe, and identify the peer after the handshake.
//
// A device is its Ed25519 key. There are no certificate authorities, names or expiry dates to
// check: a connection is valid if the peer proves that it holds the very key that was exchanged by
// pairing, or by hand.
//
//	key.go    the private key and its file
//	trust.go  the trust file, with the keys of other devices
//	paired.go changes of the trust file after pairing
//	tls.go    handshakes that verify keys
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

// Text form of a public key: keyPrefix, then in base32 (RFC 4648, lower case) the 32 bytes of the
// key and 3 of a checksum. 35 bytes are exactly 56 characters, so each key has one spelling, of 60
// characters in all. One in 16 million typos goes unnoticed here; the handshake detects it.
const (
	keyPrefix   = "mpb1"
	checksumLen = 3
	keyTextLen  = len(keyPrefix) + (len(PublicKey{})+checksumLen)*8/5
)

// Labels separate the uses of SHA-256.
const (
	checksumLabel = "mpbond key checksum 1\x00"
	idLabel       = "mpbond device id 1\x00"
)

var base32Text = base32.StdEncoding.WithPadding(base32.NoPadding)

const keyHint = "copy the whole key again, as `mpbond keygen` prints it on the other device"

func (k PublicKey) computeChecksum() []byte {
	sum := sha256.Sum256(append([]byte(checksumLabel), k[:]...))
	return sum[:checksumLen]
}

// String returns the text form: 60 lower-case letters and digits.
func (k PublicKey) String() string {
	return keyPrefix + strings.ToLower(base32Text.EncodeToString(append(k[:], k.computeChecksum()...)))
}

// ParsePublicKey parses the text form. It ignores case and surrounding space. Any other difference,
// such as a typo, is a fault of kind Config.
func ParsePublicKey(s string) (PublicKey, error) {
	k, err := parseKeyText(strings.ToLower(strings.TrimSpace(s)))
	return k, fault.New(fault.Config, err, keyHint)
}

// parseKeyText parses the text form of a key, without surrounding space.
func parseKeyText(s string) (k PublicKey, err error) {
	rest, ok := strings.CutPrefix(s, keyPrefix)
	switch {
	case s == "":
		return k, errors.New("the key is empty")
	case !ok:
		return k, fmt.Errorf("this is not a key: keys begin with %q", keyPrefix)
	case len(s) != keyTextLen:
		return k, fmt.Errorf("the key has %d characters instead of %d", len(s), keyTextLen)
	}
	raw, err := base32Text.DecodeString(strings.ToUpper(rest))
	if err != nil {
		return k, errors.New("the key has an invalid character (keys use a to z and 2 to 7)")
	}
	n := copy(k[:], raw)
	if !bytes.Equal(raw[n:], k.computeChecksum()) {
		return PublicKey{}, errors.New("the key has a typo: its checksum does not match")
	}
	return k, nil
}

// MarshalText returns String.
func (k PublicKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText calls ParsePublicKey.
func (k *PublicKey) UnmarshalText(t []byte) (err error) {
	*k, err = ParsePublicKey(string(t))
	return err
}

// ID is a short name of a key for people to compare: 80 bits of its SHA-256. Two devices never
// share one by chance, and finding a second key for an ID takes 2^80 tries. Still, trust is in
// keys, never in IDs.
type ID [10]byte

// Verify reports whether sig is a signature of b by the key.
func (k PublicKey) Verify(b []byte, sig [ed25519.SignatureSize]byte) bool {
	return ed25519.Verify(k[:], b, sig[:])
}

// ID returns the key's short name.
func (k PublicKey) ID() ID {
	sum := sha256.Sum256(append([]byte(idLabel), k[:]...))
	return ID(sum[:len(ID{})])
}

// String returns four groups of four characters, such as "K7QF-3M2A-XT5B-Y2JD".
func (id ID) String() string {
	s := base32Text.EncodeToString(id[:])
	return s[:4] + "-" + s[4:8] + "-" + s[8:12] + "-" + s[12:]
}

// MarshalText returns String.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }
