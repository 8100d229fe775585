// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"mpbond/base/fault"
)

// Hints for refused connections.
const (
	hintPair = "pair the two: `mpbond accept` at the server or helper, `mpbond pair CODE` at the primary; " +
		"or by hand, `mpbond trust add` "
	hintTrustThem = "if that device is yours, " + hintPair + "here"
	hintTrustUs   = "the other end does not know this device, or expects another one: " + hintPair + "there"
	hintWrongKey  = "check the address; if that device has a new key, `mpbond revoke` it and pair the two again. " +
		"Otherwise somebody may intercept the connection"
	hintPort = "check address and port: another program than mpbond seems to answer there"
)

// ClientConfig returns the TLS configuration for connecting to the device with key server. alpn is
// the application protocol; the handshake fails unless both ends name the same. Another peer is a
// fault of kind WrongKey.
//
// In TLS 1.3 the client's handshake ends before the server has verified the client: a refusal
// arrives with the first Read. See ExplainTLS.
func (k *Key) ClientConfig(server PublicKey, alpn string) *tls.Config {
	c := k.commonTLSConfig(alpn, func(peer PublicKey) error {
		if peer != server {
			return fault.New(fault.WrongKey, fmt.Errorf("a device with another key answered: %v instead of %v",
				peer.ID(), server.ID()), hintWrongKey)
		}
		return nil
	})
	// The chain and name checks of crypto/tls do not apply to pinned keys and are disabled. Still
	// active are the peer's proof that it holds the key (CertificateVerify), and VerifyConnection,
	// which crypto/tls calls in every handshake, including resumed ones.
	c.InsecureSkipVerify = true
	return c
}

// UnverifiedConfig returns the TLS configuration for connecting to a device with an unknown key. It
// accepts any key that the peer proves to hold; PeerKey returns it. The caller must verify the
// owner of the key by other means.
func (k *Key) UnverifiedConfig(alpn string) *tls.Config {
	c := k.commonTLSConfig(alpn, func(PublicKey) error { return nil })
	c.InsecureSkipVerify = true // as in ClientConfig
	return c
}

// ServerConfig returns the TLS configuration for accepting devices whose key is allowed, with alpn
// as in ClientConfig. allowed is called in each handshake, from many goroutines. A refused device
// is a fault of kind UnknownDevice here, and at the client what ExplainTLS returns.
func (k *Key) ServerConfig(alpn string, allowed func(PublicKey) bool) *tls.Config {
	c := k.commonTLSConfig(alpn, func(peer PublicKey) error {
		if !allowed(peer) {
			return fault.New(fault.UnknownDevice, fmt.Errorf("unknown device %v, key %v", peer.ID(), peer),
				hintTrustThem)
		}
		return nil
	})
	// RequireAnyClientCert: crypto/tls requires a certificate and the proof of its key;
	// VerifyConnection checks which key it is.
	c.ClientAuth = tls.RequireAnyClientCert
	// Clients without a protocol are refused before our certificate is sent; crypto/tls refuses
	// those with another protocol.
	c.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		if len(h.SupportedProtos) == 0 {
			return nil, fault.New(fault.Protocol, fmt.Errorf("the other end does not speak %q", alpn), hintPort)
		}
		return nil, nil
	}
	return c
}

// OnHello makes cfg, from Key.ServerConfig, call f when a complete ClientHello has arrived, before
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

// commonTLSConfig returns what both ends share. Rules for every connection:
//
//   - TLS 1.3 and nothing older;
//   - one application protocol, which must be agreed on: crypto/tls accepts a peer that names
//     none, VerifyConnection below does not;
//   - both ends send a certificate, and only its Ed25519 key counts;
//   - no session tickets: each connection proves the keys again, so that a device removed from
//     the trust file stays out;
//   - full-size records from the first byte on, for throughput.
func (k *Key) commonTLSConfig(alpn string, checkKey func(PublicKey) error) *tls.Config {
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

// PeerKey returns the key of the peer of a connection made with these configurations, after the
// handshake. A missing key, or one that is not Ed25519, is a fault of kind Protocol.
func PeerKey(cs tls.ConnectionState) (PublicKey, error) {
	if len(cs.PeerCertificates) == 0 {
		return PublicKey{}, fault.New(fault.Protocol, errors.New("the other end sent no key"), hintPort)
	}
	key, ok := cs.PeerCertificates[0].PublicKey.(ed25519.PublicKey)
	if !ok || len(key) != len(PublicKey{}) {
		return PublicKey{}, fault.New(fault.Protocol, errors.New("the other end's key is not an Ed25519 key"), hintPort)
	}
	return PublicKey(key), nil
}

// PeerError is a handshake error after the peer has proved its key.
type PeerError struct {
	Peer PublicKey
	Err  error
}

// Error implements error.
func (e *PeerError) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *PeerError) Unwrap() error { return e.Err }

// FailedPeer returns the key that the peer proved before err, if any.
func FailedPeer(err error) (key PublicKey, ok bool) {
	var e *PeerError
	if ok = errors.As(err, &e); ok {
		key = e.Peer
	}
	return key, ok
}

// ExplainTLS turns an error of a TLS handshake, Read or Write into a fault with a hint where
// crypto/tls says too little: above all if the peer refused our key, which a client learns with its
// first Read. It returns other errors, and nil, unchanged.
func ExplainTLS(err error) error {
	var done *fault.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	var record tls.RecordHeaderError
	if errors.As(err, &record) {
		return fault.New(fault.Protocol, fmt.Errorf("the other end does not speak TLS: %w", err), hintPort)
	}
	// The alert type of the peer is private to crypto/tls, which only shows the operation and the
	// text. A test checks these texts.
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "remote error" || op.Err == nil {
		return err
	}
	switch op.Err.Error() {
	case "tls: bad certificate", "tls: unknown certificate", "tls: certificate required":
		return fault.New(fault.UnknownDevice, fmt.Errorf("the other end refused the key of this device: %w", err),
			hintTrustUs)
	case "tls: protocol version not supported", "tls: no application protocol", "tls: handshake failure":
		return fault.New(fault.Protocol, fmt.Errorf("the other end is not a compatible mpbond: %w", err), hintPort)
	}
	return err
}
