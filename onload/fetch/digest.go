package fetch

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"hash"
	"net/http"
	"strings"
)

// digest is a hash that an answer promises (RFC 9530), by the name of its algorithm
// there; "" is none.
type digest struct {
	name string
	sum  string
}

var digestHashes = map[string]func() hash.Hash{"sha-256": sha256.New, "sha-512": sha512.New}

// parseDigest reads the strongest digest that we know from a field such as Repr-Digest:
// sha-256=:base64:, others are for others. One that makes no sense is none.
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

// MarshalText and UnmarshalText are for the journal.
func (d digest) MarshalText() ([]byte, error) {
	return []byte(d.name + "=:" + base64.StdEncoding.EncodeToString([]byte(d.sum)) + ":"), nil
}

func (d *digest) UnmarshalText(text []byte) error {
	*d = parseDigest(http.Header{"D": {string(text)}}, "D")
	return nil
}

// newHash is a hash to be fed, or nil.
func (d digest) newHash() hash.Hash {
	if d.name == "" {
		return nil
	}
	return digestHashes[d.name]()
}
