package page

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"mpbond/link/tcp"
)

// Limits of entering. Of a code of 40 bits, so many tries a minute find one in 70 000
// years.
const (
	maxSessions     = 64
	sessionTime     = 12 * time.Hour // since it was last used
	triesPerAddress = 5              // a minute, of one address
	triesInAll      = 30
)

// sessions are those who told the code.
type sessions struct {
	code string

	mu       sync.Mutex
	tries    tcp.RateLimiter[netip.Prefix]
	allTries tcp.RateLimiter[bool]
	lastUsed map[string]time.Time // by token
}

func newSessions(code string) *sessions {
	return &sessions{code: normalizeCode(code), lastUsed: map[string]time.Time{},
		tries: tcp.RateLimiter[netip.Prefix]{PerMinute: triesPerAddress}, allTries: tcp.RateLimiter[bool]{PerMinute: triesInAll}}
}

// normalizeCode is a code as people may write it: without dashes, and with what looks like a
// digit as one.
func normalizeCode(s string) string {
	return strings.Map(func(r rune) rune {
		switch r {
		case '-', ' ', '\t', '\n':
			return -1
		case 'O':
			return '0'
		case 'I', 'L':
			return '1'
		}
		return r
	}, strings.ToUpper(s))
}

// loginResult is what came of a try.
type loginResult uint8

const (
	loginOK loginResult = iota
	wrongCode
	tooManyTries
)

// login gives a token to who tells the code.
func (s *sessions) login(from net.Addr, code string, now time.Time) (token string, e loginResult) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.tries.Allow(tcp.SourceOf(from), now) || !s.allTries.Allow(true, now) {
		return "", tooManyTries
	}
	if subtle.ConstantTimeCompare([]byte(normalizeCode(code)), []byte(s.code)) != 1 {
		return "", wrongCode
	}
	for len(s.lastUsed) >= maxSessions {
		oldest, at := "", now.Add(time.Hour)
		for t, used := range s.lastUsed {
			if used.Before(at) {
				oldest, at = t, used
			}
		}
		delete(s.lastUsed, oldest)
	}
	token = rand.Text()
	s.lastUsed[token] = now
	return token, loginOK
}

// checkToken tells whether a token is that of a session, which lasts on. A token has 128
// random bits: who it is looked up by tells nothing to guess it by.
func (s *sessions) checkToken(token string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	used, ok := s.lastUsed[token]
	if !ok {
		return false
	}
	if now.Sub(used) > sessionTime {
		delete(s.lastUsed, token)
		return false
	}
	s.lastUsed[token] = now
	return true
}
