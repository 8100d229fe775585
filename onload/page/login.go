// SPDX-License-Identifier: Apache-2.0

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

// Limits of log-ins. At this rate, guessing a code of 40 bits takes 70 000 years.
const (
	maxSessions     = 64
	sessionTime     = 12 * time.Hour // since the last use
	triesPerAddress = 5              // per minute and source address
	triesInAll      = 30             // per minute
)

// sessions are the log-ins with the access code.
type sessions struct {
	code string

	mu       sync.Mutex
	tries    tcp.RateLimiter[netip.Prefix]
	allTries tcp.RateLimiter[bool]
	lastUsed map[string]time.Time // by token
}

// newSessions returns the sessions for an access code.
func newSessions(code string) *sessions {
	return &sessions{code: normalizeCode(code), lastUsed: map[string]time.Time{},
		tries:    tcp.RateLimiter[netip.Prefix]{PerMinute: triesPerAddress},
		allTries: tcp.RateLimiter[bool]{PerMinute: triesInAll}}
}

// normalizeCode returns a code without separators, with letters that look like digits replaced.
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

// loginResult is the result of a log-in.
type loginResult uint8

const (
	loginOK loginResult = iota
	wrongCode
	tooManyTries
)

// loginWithCode returns a new token if the code is correct. It ends the least recently used session
// at the limit.
func (s *sessions) loginWithCode(from net.Addr, code string, now time.Time) (token string, e loginResult) {
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

// checkToken reports whether a token belongs to a session, and extends that. A token has 128 random
// bits, so the timing of the look-up does not help to guess one.
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
