// SPDX-License-Identifier: Apache-2.0

package pairing

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"mpbond/base/fault"
	"mpbond/base/identity"
)

// Code is what a user copies from the device that shows it to the device that calls: a secret and
// the addresses to call.
//
//	K7QF-3M2A@vps.example.org:7600
type Code struct {
	// Secret has 40 random bits, as 8 characters. With the few tries allowed, an attacker guesses
	// it with a chance of 1 in 2^33. That of a fleet's code has 80 bits, since its tries are not
	// counted and those who have the fleet's records can guess without asking.
	Secret string
	// Fleet is the FleetFingerprint of the fleet that issued the code; "" for the code of one device.
	Fleet string
	// Addrs are the addresses of the device, "host:port". None means that the device is found on
	// the local network.
	Addrs []string
}

// Ports of devices that show a code: a server's own port, and the port that a helper opens while
// its code is valid.
const (
	ServerPort = 7600
	HelperPort = 7603
)

// maxCodeAddrs bounds the addresses of a code.
const maxCodeAddrs = 8

// alphabet is Crockford's base32, without letters that look like digits.
const (
	alphabet       = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
	secretLen      = 8
	fleetSecretLen = 16
	fleetLen       = 20 // of the fleet's fingerprint, which follows the secret
)

// NewSecret returns a random secret.
func NewSecret() string { return randomText(secretLen) }

// NewFleetCode returns a new code of the fleet with that key.
func NewFleetCode(key identity.PublicKey, addrs []string) Code {
	return Code{Secret: randomText(fleetSecretLen), Fleet: FleetFingerprint(key), Addrs: addrs}
}

// randomText returns n random characters of the alphabet.
func randomText(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	for i, v := range b {
		b[i] = alphabet[v%32]
	}
	return string(b)
}

// IsFleet reports whether the code is that of a fleet's invitation.
func (c Code) IsFleet() bool { return c.Fleet != "" }

// String returns the code as it is shown.
func (c Code) String() string {
	var groups []string
	for g := range slices.Chunk([]byte(c.Secret+c.Fleet), 4) {
		groups = append(groups, string(g))
	}
	s := strings.Join(groups, "-")
	if len(c.Addrs) > 0 {
		s += "@" + strings.Join(c.Addrs, ",")
	}
	return s
}

const codeHint = "write it as the other device shows it, like K7QF-3M2A@vps.example.org:7600"

// codeScheme is the prefix of the text in a QR code.
const codeScheme = "mpbond:"

// QR returns the text of the QR code.
func (c Code) QR() string { return codeScheme + c.String() }

// ParseCode parses a code as users write it. Case does not matter; O and 0 are equal, as are I, L
// and 1; spaces and dashes are ignored. An address without a port gets the ports of a server and of
// a helper. Errors are faults of kind Usage.
func ParseCode(s string) (Code, error) {
	c, err := parsePairingCode(s)
	return c, fault.New(fault.Usage, err, codeHint)
}

// parsePairingCode parses a code with its addresses, if any. It ignores case, hyphens and spaces,
// and takes O for 0, I and L for 1.
func parsePairingCode(s string) (c Code, err error) {
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
			return c, fmt.Errorf("a code cannot contain %q", r)
		}
		b.WriteRune(r)
	}
	switch b.Len() {
	case secretLen:
		c.Secret = b.String()
	case fleetSecretLen + fleetLen:
		c.Secret, c.Fleet = b.String()[:fleetSecretLen], b.String()[fleetSecretLen:]
	default:
		return c, fmt.Errorf("the code has %d characters instead of %d, or %d for a fleet's", b.Len(), secretLen,
			fleetSecretLen+fleetLen)
	}
	switch {
	case !at && c.IsFleet():
		return c, errors.New("a fleet's code needs the address of a server after an @")
	case !at:
		return c, nil
	}
	if strings.Trim(list, ", ") == "" {
		return c, errors.New("there is no address after the @")
	}
	for addr := range strings.SplitSeq(list, ",") {
		host, port, err := net.SplitHostPort(addr)
		if err != nil {
			host, port = strings.Trim(addr, "[]"), ""
		}
		if host == "" || len(host) > 253 || strings.ContainsAny(host, " @/[]") {
			return c, fmt.Errorf("%.60q is not an address", addr)
		}
		if n, err := strconv.ParseUint(port, 10, 16); port != "" && (err != nil || n == 0) {
			return c, fmt.Errorf("%.60q is not an address: %.20q is not a port from 1 to 65535", addr, port)
		}
		ports := []string{port}
		if port == "" && c.IsFleet() {
			ports = []string{strconv.Itoa(ServerPort)}
		} else if port == "" {
			ports = []string{strconv.Itoa(ServerPort), strconv.Itoa(HelperPort)}
		}
		for _, p := range ports {
			c.Addrs = append(c.Addrs, net.JoinHostPort(host, p))
		}
	}
	if len(c.Addrs) > maxCodeAddrs {
		return c, fmt.Errorf("more than %d addresses", maxCodeAddrs)
	}
	return c, nil
}
