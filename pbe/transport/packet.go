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

// Packets. Numbers are big-endian; an id is chosen by who is reached by it.
//
//	HELLO    0x01 version(1) id(8) share(32) token(40), zeros to 1200 bytes
//	RETRY    0x02 version(1) id(8, of the HELLO) token(40)
//	WELCOME  0x03 version(1) id(8, of the HELLO) id(8) share(32) reset(16) proof(16)
//	DATA     0x04 id(8) number(4, the low bits) frames tag(16)
//	RESET    0x05 id(8, of the DATA) token(16)
//	BUSY     0x06 version(1) id(8, of the HELLO)
//
// HELLO asks for a connection. It is as long as what a path must carry anyway, so
// that every answer is shorter. RETRY asks for the same with a token that only who
// receives at that address can know; a server answers so while many connections, or
// many of that source, wait to be confirmed. WELCOME's proof is an HMAC of its other bytes, so that the
// client knows that the server saw its HELLO as it was. The keys are HKDF-SHA256 of
// the X25519 secret, with the hash of HELLO (to its token) and WELCOME (to its share)
// as salt. The first DATA packet confirms the connection.
//
// RESET says that whoever is reached by this id has forgotten the connection (RFC 9000
// section 10.3): its token is what WELCOME had as reset, which is masked with bytes of
// the same HKDF, so that nobody who looks on knows it. BUSY says that there is no room for another connection. It can be
// forged, and is no reason to give up; but it is in the error of who does.
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
	welcomeBareLen  = 2 + connIDLen + connIDLen + shareLen // a WELCOME without its last two fields
	resetTokenLen   = 16                                   // of RESET
	resetLen        = 1 + connIDLen + resetTokenLen
	busyLen         = 2 + connIDLen
	proofOffset     = welcomeBareLen + resetTokenLen
	welcomeLen      = proofOffset + proofLen
	dataHeaderLen   = 1 + connIDLen + 4
	tagLen          = 16
	overhead        = dataHeaderLen + tagLen

	minPayload    = 1200 // UDP payload that every path must carry (RFC 9000 section 14)
	maxPayload    = 8952 // of an Ethernet frame of 9000 bytes, IPv6
	tokenLifetime = 10 * time.Second
)

type connID [connIDLen]byte

// errMalformed is for what no peer of ours sends.
var errMalformed = errors.New("malformed packet")

// keys are those of one end, for one goroutine at a time.
type keys struct {
	localAEAD, peerAEAD cipher.AEAD
	localIV, peerIV     [12]byte
	nonce               [12]byte // here, so that it takes no memory each time
}

// welcomeKeys is of one WELCOME.
type welcomeKeys struct{ proof, mask []byte }

// deriveKeys derives the keys of an end, and those of WELCOME, from its own
// secret and the other's share; hello and bare are what both have seen.
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
	if k.localAEAD, err = newGCM(own[:16]); err == nil {
		k.peerAEAD, err = newGCM(peer[:16])
	}
	copy(k.localIV[:], own[16:])
	copy(k.peerIV[:], peer[16:])
	return k, welcomeKeys{all[2*each : 2*each+32], all[2*each+32:]}, err
}

func newGCM(key []byte) (cipher.AEAD, error) {
	c, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(c)
}

// nonceFor is the nonce of a packet's number, which no other packet of this key has
// (RFC 9001 section 5.3), until it is asked again.
func (k *keys) nonceFor(iv *[12]byte, number uint64) []byte {
	k.nonce = *iv
	binary.BigEndian.PutUint64(k.nonce[4:], binary.BigEndian.Uint64(iv[4:])^number)
	return k.nonce[:]
}

// appendDataHeader begins a DATA packet at the end of b; finish ends it.
func appendDataHeader(b []byte, id connID) []byte {
	b = append(b, typeData)
	b = append(b, id[:]...)
	return append(b, 0, 0, 0, 0)
}

// sealPacket gives the DATA packet that begins at start, and ends b, its number and
// its tag.
func (k *keys) sealPacket(b []byte, start int, number uint64) []byte {
	binary.BigEndian.PutUint32(b[start+1+connIDLen:], uint32(number))
	return k.localAEAD.Seal(b, k.nonceFor(&k.localIV, number), nil, b[start:])
}

// openPacket returns the frames of a DATA packet, in its own memory, and its number; high
// is the highest number opened so far. An error says that the packet is not the
// peer's.
func (k *keys) openPacket(p []byte, high uint64) (frames []byte, number uint64, err error) {
	if len(p) < overhead || p[0] != typeData {
		return nil, 0, errMalformed
	}
	number = decodePacketNumber(binary.BigEndian.Uint32(p[1+connIDLen:]), high)
	end := len(p) - tagLen
	if _, err := k.peerAEAD.Open(nil, k.nonceFor(&k.peerIV, number), p[end:], p[:end]); err != nil {
		return nil, 0, err
	}
	return p[dataHeaderLen:end], number, nil
}

// decodePacketNumber is the number with these low bits that is nearest to what follows high
// (RFC 9000 appendix A.3).
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

// appendHello makes a client's first packet.
func appendHello(b []byte, id connID, share, token []byte) []byte {
	start := len(b)
	b = append(b, typeHello, version)
	b = append(b, id[:]...)
	b = append(b, share...)
	b = append(b, token...)
	return append(b, make([]byte, minPayload-(len(b)-start))...)
}

// sealWelcome appends the last two fields to a WELCOME.
func (k welcomeKeys) sealWelcome(bare, token []byte) []byte {
	w := append(bare, token...)
	subtle.XORBytes(w[welcomeBareLen:], w[welcomeBareLen:], k.mask)
	return append(w, k.computeProof(w)...)
}

// openWelcome returns the token of a WELCOME; false: it is not of who has received the HELLO.
func (k welcomeKeys) openWelcome(w []byte) (token [resetTokenLen]byte, ok bool) {
	subtle.XORBytes(token[:], w[welcomeBareLen:proofOffset], k.mask)
	return token, hmac.Equal(k.computeProof(w[:proofOffset]), w[proofOffset:welcomeLen])
}

func (k welcomeKeys) computeProof(w []byte) []byte {
	m := hmac.New(sha256.New, k.proof)
	m.Write(w)
	return m.Sum(nil)[:proofLen]
}

// computeResetToken is that of the connection of an id at the endpoint of that address. The
// secret is no other endpoint's of that address, so that nobody can ask another one for the token of a connection
// that is alive.
func computeResetToken(secret []byte, addr string, id connID) (t [resetTokenLen]byte) {
	m := hmac.New(sha256.New, secret)
	m.Write(id[:])
	io.WriteString(m, addr)
	copy(t[:], m.Sum(nil))
	return t
}

// newAddressToken makes the token of an address: whoever returns it within tokenLifetime
// receives there.
func newAddressToken(secret []byte, now time.Time, addr string) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(now.UnixMilli()))
	m := hmac.New(sha256.New, secret)
	m.Write(b)
	io.WriteString(m, addr)
	return m.Sum(b)
}

// isValidAddressToken tells whether token is one of stamp's for that address, and not too old.
func isValidAddressToken(secret []byte, now time.Time, addr string, token []byte) bool {
	at := time.UnixMilli(int64(binary.BigEndian.Uint64(token)))
	return now.Sub(at).Abs() <= tokenLifetime && hmac.Equal(token, newAddressToken(secret, at, addr))
}

func newConnID() (id connID) {
	rand.Read(id[:])
	return id
}
