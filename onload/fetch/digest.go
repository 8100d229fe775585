// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"hash"
	"net/http"
	"strings"
)

// digest is a hash from a response field (RFC 9530): the name of the algorithm and the value. An
// empty name means none.
type digest struct {
	name string
	sum  string
}

// digestHashes maps the supported algorithms to their hash functions.
var digestHashes = map[string]func() hash.Hash{"sha-256": sha256.New, "sha-512": sha512.New}

// parseDigest returns the strongest supported digest of a field such as Repr-Digest, with members
// like "sha-256=:base64:". Unknown and invalid members are ignored.
func parseDigest(h http.Header, field string) (d digest) {
	for _, member := range strings.Split(strings.Join(h.Values(field), ","), ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(member), "=")
		value, _, _ = strings.Cut(value, ";")
		n := len(value)
		if !ok || digestHashes[name] == nil || n < 2 || value[0] != ':' || value[n-1] != ':' {
			continue
		}
		sum, err := base64.StdEncoding.DecodeString(value[1 : n-1])
		if err == nil && len(sum) == digestHashes[name]().Size() && name > d.name {
			d = digest{name, string(sum)}
		}
	}
	return d
}

// MarshalText implements encoding.TextMarshaler for the journal.
func (d digest) MarshalText() ([]byte, error) {
	return []byte(d.name + "=:" + base64.StdEncoding.EncodeToString([]byte(d.sum)) + ":"), nil
}

// UnmarshalText implements encoding.TextUnmarshaler for the journal.
func (d *digest) UnmarshalText(text []byte) error {
	*d = parseDigest(http.Header{"D": {string(text)}}, "D")
	return nil
}

// newDigestHash returns a new hash of the algorithm, or nil for no digest.
func (d digest) newDigestHash() hash.Hash {
	if d.name == "" {
		return nil
	}
	return digestHashes[d.name]()
}
