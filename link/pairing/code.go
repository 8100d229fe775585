package pairing

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"mpbond/base/fault"
)

// Code is what a person carries from the device that shows it to the one that
// calls: a secret, and where to call.
//
//	K7QF-3M2A@vps.example.org:7600
type Code struct {
	// Secret has 40 random bits, as 8 characters. Few tries are allowed, so that
	// a guess is right once in 200 billion times.
	Secret string
	// Addrs are "host:port", where the device may be; none for one of the local
	// network that is to be found.
	Addrs []string
}

// Ports of devices that show a code: a server's own, and that which a helper
// opens while its code holds.
const (
	ServerPort = 7600
	HelperPort = 7603
)

// maxCodeAddrs bounds the addresses of a code.
const maxCodeAddrs = 8

// alphabet is Crockford's base32: no letter that looks like a digit.
const (
	alphabet  = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	secretLen = 8
)

// NewSecret draws the secret of a code.
func NewSecret() string {
	var b [secretLen]byte
	_, _ = rand.Read(b[:]) // never fails
	for i, v := range b {
		b[i] = alphabet[v%32]
	}
	return string(b[:])
}

// String is how a code is shown.
func (c Code) String() string {
	s := c.Secret
	if len(s) == secretLen {
		s = s[:4] + "-" + s[4:]
	}
	if len(c.Addrs) > 0 {
		s += "@" + strings.Join(c.Addrs, ",")
	}
	return s
}

const codeHint = "write it as the other device shows it, like K7QF-3M2A@vps.example.org:7600"

// codeScheme begins the text of a QR code.
const codeScheme = "mpbond:"

// QR is the text of the code's picture.
func (c Code) QR() string { return codeScheme + c.String() }

// ParseCode reads a code as people write it: upper and lower case are the same,
// as are O and 0, I, L and 1; spaces and dashes do not count. An address without
// a port may be that of a server or of a helper. Errors are faults of kind Usage.
func ParseCode(s string) (Code, error) {
	c, err := parseCode(s)
	return c, fault.New(fault.Usage, err, codeHint)
}

func parseCode(s string) (c Code, err error) {
	secret, list, at := strings.Cut(strings.TrimPrefix(strings.TrimSpace(s), codeScheme), "@")
	var b strings.Builder
	for _, r := range strings.ToUpper(secret) {
		switch r {
		case '-', ' ':
			continue
		case 'O':
			r = '0'
		case 'I', 'L':
			r = '1'
		}
		if !strings.ContainsRune(alphabet, r) {
			return c, fmt.Errorf("no code has the character %q", r)
		}
		b.WriteRune(r)
	}
	if b.Len() != secretLen {
		return c, fmt.Errorf("the code has %d characters instead of %d", b.Len(), secretLen)
	}
	c.Secret = b.String()
	if !at {
		return c, nil
	}
	if strings.Trim(list, ", ") == "" {
		return c, errors.New("no address is behind the @")
	}
	for addr := range strings.SplitSeq(list, ",") {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			host, port = strings.Trim(addr, "[]"), ""
		}
		if host == "" || len(host) > 253 || strings.ContainsAny(host, " @/[]") {
			return c, fmt.Errorf("%.60q is no address", addr)
		}
		if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0) {
			return c, fmt.Errorf("%.60q is no address: %.20q is no port from 1 to 65535", addr, port)
		}
		ports := []string{port}
		if port == "" {
			ports = []string{strconv.Itoa(ServerPort), strconv.Itoa(HelperPort)}
		}
		for _, p := range ports {
			c.Addrs = append(c.Addrs, net.JoinHostPort(host, p))
		}
	}
	if len(c.Addrs) > maxCodeAddrs {
		return c, fmt.Errorf("over %d addresses", maxCodeAddrs)
	}
	return c, nil
}
