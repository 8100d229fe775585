// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"

	"mpbond/base/fault"
	"mpbond/base/identity"
)

// Signed is a document with the signature of the fleet's key. The operator keeps that key: neither a
// server nor the engine can make such a document.
type Signed struct {
	Body []byte `json:"body"` // JSON
	Sig  []byte `json:"sig"`
}

// document is what a fleet's key signs.
type document interface {
	// kind separates the uses of the key: a signature of one kind of document is none of another.
	kind() string
}

// signedText returns the bytes that a signature of a document covers.
func signedText(kind string, body []byte) []byte {
	return append([]byte("mpbond fleet "+kind+" 1\x00"), body...)
}

// sign returns a document with its signature.
func sign(key *identity.Key, d document) (Signed, error) {
	body, err := json.Marshal(d)
	if err != nil {
		return Signed{}, err
	}
	sig := key.Sign(signedText(d.kind(), body))
	return Signed{body, sig[:]}, nil
}

// errNotSigned means that a document has no valid signature of the fleet.
var errNotSigned = fault.New(fault.Integrity, errors.New("not signed by this fleet's key"),
	"something has changed what the fleet's operator wrote, or it is another fleet's: see `mpbond fleet status`")

// decodeVerified checks the signature of a document and decodes it into d.
func (s Signed) decodeVerified(key identity.PublicKey, d document) error {
	if !ed25519.Verify(key[:], signedText(d.kind(), s.Body), s.Sig) {
		return fmt.Errorf("%s: %w", d.kind(), errNotSigned)
	}
	if err := json.Unmarshal(s.Body, d); err != nil { // by a later version's operator
		return fault.New(fault.Integrity, fmt.Errorf("%s: %w", d.kind(), err),
			"install the same release of mpbond everywhere")
	}
	return nil
}

// encode returns the JSON of v, which always has one.
func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // a type of this package without a JSON form
	}
	return b
}
