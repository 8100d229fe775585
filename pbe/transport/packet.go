// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// Packet formats. Numbers are big-endian. Each end chooses the ID by which it is reached.
//
//	HELLO    0x01 version(1) id(8) share(32) token(40), zeros to 1200 bytes
//	RETRY    0x02 version(1) id(8, of the HELLO) token(40)
//	WELCOME  0x03 version(1) id(8, of the HELLO) id(8) share(32) reset(16) proof(16)
//	DATA     0x04 id(8) number(4, the low bits) frames tag(16)
//	RESET    0x05 id(8, of the DATA) token(16)
//	BUSY     0x06 version(1) id(8, of the HELLO)
//
// HELLO asks for a connection. It is padded to the size that every path carries, so every answer is
// shorter. RETRY asks for another HELLO with a token, which only the owner of the source address
// can receive. A server sends it while many connections, or many of that source, are unconfirmed.
// The proof in WELCOME is an HMAC of its other bytes. It shows the client that the server received
// an unmodified HELLO. The keys are HKDF-SHA256 of the X25519 secret; the salt is the hash of HELLO
// (up to its token) and WELCOME (up to its share). The first DATA packet confirms the connection.
//
// RESET says that the sender has no state of the connection (RFC 9000 section 10.3). Its token is
// the reset field of WELCOME, which is masked with bytes of the same HKDF to keep it secret from
// observers. BUSY says that the server has no room for another connection. It can be forged, so the
// client keeps trying and only mentions it in its error.
const (
	typeHello   = 1
	typeRetry   = 2
	typeWelcome = 3
	typeData    = 4
	typeReset   = 5
	typeBusy    = 6

	version         = 2
	connIDLen       = 8
	shareLen        = 32
	addressTokenLen = 8 + sha256.Size // time, HMAC
	proofLen        = 16
	helloLen        = 2 + connIDLen + shareLen + addressTokenLen
	retryLen        = 2 + connIDLen + addressTokenLen
	welcomeBareLen  = 2 + connIDLen + connIDLen + shareLen // WELCOME without reset and proof
	resetTokenLen   = 16                                   // token of a RESET
	resetLen        = 1 + connIDLen + resetTokenLen
	busyLen         = 2 + connIDLen
	proofOffset     = welcomeBareLen + resetTokenLen
	welcomeLen      = proofOffset + proofLen
	dataHeaderLen   = 1 + connIDLen + 4
	tagLen          = 16
	overhead        = dataHeaderLen + tagLen

	minPayload    = 1200 // UDP payload that every path must carry (RFC 9000 section 14)
	maxPayload    = 8952 // UDP payload of a 9000-byte Ethernet frame with IPv6
	tokenLifetime = 10 * time.Second
)

// connID identifies a connection at the end that chose it.
type connID [connIDLen]byte

// errMalformed reports a packet that no valid peer sends.
var errMalformed = errors.New("malformed packet")

// keys are the packet keys of one end. They are not safe for concurrent use.
type keys struct {
	localAEAD, peerAEAD cipher.AEAD
	localIV, peerIV     [12]byte
	nonce               [12]byte // a field to avoid an allocation for each packet
}

// welcomeKeys protect one WELCOME.
type welcomeKeys struct{ proof, mask []byte }

// deriveKeys derives the packet keys of one end and the keys of WELCOME. Its inputs are the local
// secret, the peer's share, and the bytes of HELLO and WELCOME that both ends have seen.
func deriveKeys(secret *ecdh.PrivateKey, share, hello, bare []byte, client bool) (k *keys, w welcomeKeys, err error) {
	pub, err := ecdh.X25519().NewPublicKey(share)
	if err != nil {
		return nil, w, fmt.Errorf("%w: %w", errMalformed, err)
	}
	common, err := secret.ECDH(pub)
	if err != nil {
		return nil, w, fmt.Errorf("%w: %w", errMalformed, err)
	}
	salt := sha256.New()
	salt.Write(hello)
	salt.Write(bare)
	const each = 16 + 12
	all, err := hkdf.Key(sha256.New, common, salt.Sum(nil), "mpbond udp 2", 2*each+32+resetTokenLen)
	if err != nil {
		return nil, w, err
	}
	k = &keys{}
	own, peer := all[:each], all[each:2*each]
	if !client {
		own, peer = peer, own
	}
	if k.localAEAD, err = newAESGCM(own[:16]); err == nil {
		k.peerAEAD, err = newAESGCM(peer[:16])
	}
	copy(k.localIV[:], own[16:])
	copy(k.peerIV[:], peer[16:])
	return k, welcomeKeys{all[2*each : 2*each+32], all[2*each+32:]}, err
}

// newAESGCM returns AES-GCM with that key.
func newAESGCM(key []byte) (cipher.AEAD, error) {
	c, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(c)
}

// packetNonce returns the nonce of a packet number, which is unique for each key (RFC 9001 section
// 5.3). It is valid until the next call.
func (k *keys) packetNonce(iv *[12]byte, number uint64) []byte {
	k.nonce = *iv
	binary.BigEndian.PutUint64(k.nonce[4:], binary.BigEndian.Uint64(iv[4:])^number)
	return k.nonce[:]
}

// appendDataHeader appends the header of a DATA packet. sealPacket completes the packet.
func appendDataHeader(b []byte, id connID) []byte {
	b = append(b, typeData)
	b = append(b, id[:]...)
	return append(b, 0, 0, 0, 0)
}

// sealPacket writes the number and appends the tag of the DATA packet that begins at start.
func (k *keys) sealPacket(b []byte, start int, number uint64) []byte {
	binary.BigEndian.PutUint32(b[start+1+connIDLen:], uint32(number))
	return k.localAEAD.Seal(b, k.packetNonce(&k.localIV, number), nil, b[start:])
}

// openPacket authenticates a DATA packet and returns its frames, which refer to p, and its number.
// high is the largest number opened so far. An error means that the packet is not from the peer.
func (k *keys) openPacket(p []byte, high uint64) (frames []byte, number uint64, err error) {
	if len(p) < overhead || p[0] != typeData {
		return nil, 0, errMalformed
	}
	number = decodePacketNumber(binary.BigEndian.Uint32(p[1+connIDLen:]), high)
	end := len(p) - tagLen
	if _, err := k.peerAEAD.Open(nil, k.packetNonce(&k.peerIV, number), p[end:], p[:end]); err != nil {
		return nil, 0, err
	}
	return p[dataHeaderLen:end], number, nil
}

// decodePacketNumber returns the packet number with these low bits that is closest to high + 1 (RFC
// 9000 appendix A.3).
func decodePacketNumber(low uint32, high uint64) uint64 {
	want := high + 1
	n := want&^0xFFFFFFFF | uint64(low)
	switch {
	case n+1<<31 <= want:
		return n + 1<<32
	case n > want+1<<31 && n >= 1<<32:
		return n - 1<<32
	}
	return n
}

// appendHello appends a client's first packet.
func appendHello(b []byte, id connID, share, token []byte) []byte {
	start := len(b)
	b = append(b, typeHello, version)
	b = append(b, id[:]...)
	b = append(b, share...)
	b = append(b, token...)
	return append(b, make([]byte, minPayload-(len(b)-start))...)
}

// sealWelcome appends the masked reset token and the proof to a WELCOME.
func (k welcomeKeys) sealWelcome(bare, token []byte) []byte {
	w := append(bare, token...)
	subtle.XORBytes(w[welcomeBareLen:], w[welcomeBareLen:], k.mask)
	return append(w, k.computeProof(w)...)
}

// openWelcome returns the reset token of a WELCOME. It returns false if its sender has not received
// the HELLO.
func (k welcomeKeys) openWelcome(w []byte) (token [resetTokenLen]byte, ok bool) {
	subtle.XORBytes(token[:], w[welcomeBareLen:proofOffset], k.mask)
	return token, hmac.Equal(k.computeProof(w[:proofOffset]), w[proofOffset:welcomeLen])
}

// computeProof returns the proof of a WELCOME's other bytes.
func (k welcomeKeys) computeProof(w []byte) []byte {
	m := hmac.New(sha256.New, k.proof)
	m.Write(w)
	return m.Sum(nil)[:proofLen]
}

// computeResetToken returns the reset token of a connection ID at an endpoint. The secret must
// belong to that address alone: otherwise another endpoint could be asked for the token of an open
// connection.
func computeResetToken(secret []byte, addr string, id connID) (t [resetTokenLen]byte) {
	m := hmac.New(sha256.New, secret)
	m.Write(id[:])
	io.WriteString(m, addr)
	copy(t[:], m.Sum(nil))
	return t
}

// newAddressToken returns a token for an address. A client that returns it within tokenLifetime
// receives packets at that address.
func newAddressToken(secret []byte, now time.Time, addr string) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(now.UnixMilli()))
	m := hmac.New(sha256.New, secret)
	m.Write(b)
	io.WriteString(m, addr)
	return m.Sum(b)
}

// isValidAddressToken reports whether newAddressToken made the token for that address and it has
// not expired.
func isValidAddressToken(secret []byte, now time.Time, addr string, token []byte) bool {
	at := time.UnixMilli(int64(binary.BigEndian.Uint64(token)))
	return now.Sub(at).Abs() <= tokenLifetime && hmac.Equal(token, newAddressToken(secret, at, addr))
}

// randomConnID returns a random connection ID.
func randomConnID() (id connID) {
	rand.Read(id[:])
	return id
}
