package identity

import (
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"mpbond/base/fault"
)

// Hints of the refusals.
const (
	hintPair      = "pair the two: `mpbond accept` at the server or helper, `mpbond pair CODE` at the primary; or by hand, `mpbond trust add` "
	hintTrustThem = "if that device is yours, " + hintPair + "here"
	hintTrustUs   = "the other end does not know this device, or expects another one: " + hintPair + "there"
	hintWrongKey  = "check the address; if that device has a new key, `mpbond revoke` it and pair the two again. Otherwise somebody may be in between"
	hintPort      = "check address and port: something else than mpbond seems to answer there"
)

// ClientConfig is the configuration for connecting to the device with key server.
// Alpn is the application protocol; the handshake fails unless both ends name
// the same. A wrong far end is a fault of kind WrongKey.
//
// In TLS 1.3 the client's handshake ends before the server has judged the
// client: a refusal arrives at the first Read. See Explain.
func (k *Key) ClientConfig(server PublicKey, alpn string) *tls.Config {
	c := k.tlsConfig(alpn, func(peer PublicKey) error {
		if peer != server {
			return fault.New(fault.WrongKey, fmt.Errorf("a device with another key answered: %v instead of %v", peer.ID(), server.ID()), hintWrongKey)
		}
		return nil
	})
	// The chain and name checks of crypto/tls do not apply to pinned keys and
	// are switched off. What is left in place: the far end's proof that it
	// holds the key (CertificateVerify), and VerifyConnection, which crypto/tls
	// calls in every handshake, resumed ones included.
	c.InsecureSkipVerify = true
	return c
}

// UnverifiedConfig is the configuration for connecting to a device whose key is not
// known yet: whatever key it proves to hold is taken, and PeerKey tells which.
// Who uses it must find out by other means whose key that is.
func (k *Key) UnverifiedConfig(alpn string) *tls.Config {
	c := k.tlsConfig(alpn, func(PublicKey) error { return nil })
	c.InsecureSkipVerify = true // as in Client
	return c
}

// ServerConfig is the configuration for accepting devices whose key is allowed.
// Alpn is as for Client. Allowed is called in each handshake, from many
// goroutines; a device that it refuses is a fault of kind UnknownDevice here,
// and at the client what Explain makes of it.
func (k *Key) ServerConfig(alpn string, allowed func(PublicKey) bool) *tls.Config {
	c := k.tlsConfig(alpn, func(peer PublicKey) error {
		if !allowed(peer) {
			return fault.New(fault.UnknownDevice, fmt.Errorf("unknown device %v, key %v", peer.ID(), peer), hintTrustThem)
		}
		return nil
	})
	// RequireAnyClientCert: crypto/tls demands a certificate and the proof of
	// its key; whether the key is a right one is for VerifyConnection.
	c.ClientAuth = tls.RequireAnyClientCert
	// Who names no protocol is refused before our certificate is shown; who names
	// another one is by crypto/tls.
	c.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		if len(h.SupportedProtos) == 0 {
			return nil, fault.New(fault.Protocol, fmt.Errorf("the other end does not speak %q", alpn), hintPort)
		}
		return nil, nil
	}
	return c
}

// OnHello makes cfg, of Key.ServerConfig, call f when a whole ClientHello has arrived, before
// anything is computed or answered. An error of f ends the handshake.
func OnHello(cfg *tls.Config, f func() error) *tls.Config {
	next := cfg.GetConfigForClient
	cfg.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		if err := f(); err != nil {
			return nil, err
		}
		return next(h)
	}
	return cfg
}

// tlsConfig is what both ends share. Rules that hold on every connection:
//
//   - TLS 1.3 and nothing older;
//   - one application protocol, which must be agreed on: crypto/tls lets a far
//     end pass that names none, judge below does not;
//   - both ends show a certificate whose Ed25519 key is judged, and nothing
//     else of it counts;
//   - no session tickets: each connection proves the keys anew, so that a
//     device removed from the trust file stays out;
//   - records of full size from the first byte on, for throughput.
func (k *Key) tlsConfig(alpn string, checkKey func(PublicKey) error) *tls.Config {
	return &tls.Config{
		MinVersion:                  tls.VersionTLS13,
		Certificates:                []tls.Certificate{k.cert},
		NextProtos:                  []string{alpn},
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			if cs.NegotiatedProtocol != alpn {
				return fault.New(fault.Protocol, fmt.Errorf("the other end does not speak %q", alpn), hintPort)
			}
			peer, err := PeerKey(cs)
			if err != nil {
				return err
			}
			return checkKey(peer)
		},
	}
}

// PeerKey is the key of the device at the far end of a connection made by
// Client or Server, whose handshake is complete. Without one, or with a key of
// another sort, it is a fault of kind Protocol.
func PeerKey(cs tls.ConnectionState) (PublicKey, error) {
	if len(cs.PeerCertificates) == 0 {
		return PublicKey{}, fault.New(fault.Protocol, errors.New("the other end showed no key"), hintPort)
	}
	key, ok := cs.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok || len(key) != len(PublicKey{}) {
		return PublicKey{}, fault.New(fault.Protocol, errors.New("the other end's key is not of the Ed25519 sort"), hintPort)
	}
	return PublicKey(key), nil
}

// PeerError is an error of a handshake in which the far end has already proved its
// key.
type PeerError struct {
	Peer PublicKey
	Err  error
}

// Error implements error.
func (e *PeerError) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *PeerError) Unwrap() error { return e.Err }

// FailedPeer returns the key that the far end had proved before err, if it had.
func FailedPeer(err error) (key PublicKey, ok bool) {
	var e *PeerError
	if ok = errors.As(err, &e); ok {
		key = e.Peer
	}
	return key, ok
}

// ExplainTLS turns an error of a TLS handshake, Read or Write into a fault that
// says what a person can do, where crypto/tls tells too little: above all the
// refusal of our key, which a client learns at its first Read. Every other
// error, and nil, is returned as it is.
func ExplainTLS(err error) error {
	var done *fault.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	var record tls.RecordHeaderError
	if errors.As(err, &record) {
		return fault.New(fault.Protocol, fmt.Errorf("the other end does not speak TLS: %w", err), hintPort)
	}
	// The type of an alert from the far end is private to crypto/tls; the
	// operation and the text are what it shows. A test holds them in place.
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" || op.Err == nil {
		return err
	}
	switch op.Err.Error() {
	case "tls: bad certificate", "tls: unknown certificate", "tls: certificate required":
		return fault.New(fault.UnknownDevice, fmt.Errorf("the other end refused the key of this device: %w", err), hintTrustUs)
	case "tls: protocol version not supported", "tls: no application protocol", "tls: handshake failure":
		return fault.New(fault.Protocol, fmt.Errorf("the other end is no mpbond of our kind: %w", err), hintPort)
	}
	return err
}
