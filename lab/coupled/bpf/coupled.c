// SPDX-License-Identifier: Apache-2.0
//
// The kernel lets only programs under licences compatible with the GPL use its functions. So this file
// may also be used under BSD-2-Clause or GPL-2.0-only.
//
// Coupled congestion control for the kernel's MPTCP, as BPF struct_ops: LIA (RFC 6356), OLIA
// (draft-khalili-mptcp-congestion-control-05) and BALIA (draft-walid-mptcp-congestion-control-04).
// Go functions of the same formulas are in formula.go. "make coupled" compiles this file.
//
// Subflows of a connection share their windows, round trips and losses in a map, by the token of the
// connection. Each writes its own slot only, so they need no lock.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define NOINLINE static __attribute__((noinline))
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name

// What we use of the kernel's types. Offsets are found when the program is loaded.
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct sock {};
struct inet_connection_sock {
	void *icsk_ulp_data;
};
struct tcp_sock {
	u32 snd_cwnd, snd_cwnd_cnt, snd_ssthresh, srtt_us, mss_cache;
	u64 bytes_acked;
	_Bool is_mptcp;
};
struct mptcp_subflow_context {
	u32 token;
};
struct tcp_congestion_ops {
	u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, u32 ack, u32 acked);
	u32 (*undo_cwnd)(struct sock *sk);
	void (*set_state)(struct sock *sk, u8 state);
	void (*release)(struct sock *sk);
	char name[16];
};
#pragma clang attribute pop

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static long (*bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;

extern u32 tcp_reno_ssthresh(struct sock *sk) SEC(".ksyms");
extern u32 tcp_reno_undo_cwnd(struct sock *sk) SEC(".ksyms");
extern void tcp_reno_cong_avoid(struct sock *sk, u32 ack, u32 acked) SEC(".ksyms");

enum { LIA, OLIA, BALIA };
enum { MAX_PATHS = 8, ONE = 1 << 22 }; // ONE packet

// path is what the formulas use of a subflow. A window of 0 is no subflow.
struct path {
	u64 window;  // packets, at most 2^16
	u64 rtt;     // microseconds, at least 1
	u64 quality; // packets between losses, at most 2^25 (OLIA)
};

// A slot is what a subflow shows to the others.
struct slot {
	u64 sk;
	struct path path;
	u64 lossAt, between; // acknowledged bytes at the last loss, and between the two before
	s64 credit;          // part of a packet, in packets / ONE
};

struct connection {
	struct slot slots[MAX_PATHS];
};

// The verifier follows each branch, and with it each combination of them. So sums have none. clang
// would make branches of them again but for BARRIER.
#define BARRIER(x) __asm__ volatile("" : "+r"(x))

// isLess and isEqual return all ones for true, and 0. Values are below 2^63.
INLINE u64 isLess(u64 a, u64 b)
{
	s64 d = a - b;
	BARRIER(d);
	d >>= 63;
	BARRIER(d);
	return d;
}

INLINE u64 isEqual(u64 a, u64 b)
{
	u64 d = a ^ b;
	return ~(isLess(0, d));
}

INLINE u64 most(u64 a, u64 b) { return b ^ ((a ^ b) & isLess(b, a)); }

// Sums over the subflows of a connection. Rates are relative to a window over the least round trip.
struct sums {
	u64 rtt;            // the least
	u64 rates, maxRate; // of window/rtt, 2^12
	u64 maxSquare;      // of window/rtt², 2^24
	u64 count, window;  // subflows; the largest window
	u64 best;           // of quality/rtt²
	u64 collected, large;
};

// ratio returns the least round trip over that of a path, 2^12. In BPF, a division by 0 is 0.
INLINE u64 ratio(const struct sums *s, const struct path *p) { return most((s->rtt << 12) / p->rtt, 1); }

INLINE u64 isUnused(const struct path *p) { return isEqual(p->window, 0); }

INLINE void sum(struct sums *s, const struct connection *c)
{
	u64 late = ~0ULL >> 12, best = 0; // late: least round trip, as its distance from the greatest
	for (int i = 0; i < MAX_PATHS; i++)
		best = most(best, (late - c->slots[i].path.rtt) & ~isUnused(&c->slots[i].path));
	s->rtt = late - best;
	for (int i = 0; i < MAX_PATHS; i++) {
		u64 x = ratio(s, &c->slots[i].path), rate = c->slots[i].path.window * x;
		s->rates += rate;
		s->count -= ~isUnused(&c->slots[i].path);
		s->maxRate = most(s->maxRate, rate);
		s->maxSquare = most(s->maxSquare, rate * x);
		s->window = most(s->window, c->slots[i].path.window);
		s->best = most(s->best, c->slots[i].path.quality * x * x & ~isUnused(&c->slots[i].path));
	}
	for (int i = 0; i < MAX_PATHS; i++) {
		u64 x = ratio(s, &c->slots[i].path);
		u64 isLarge = isEqual(c->slots[i].path.window, s->window) & ~isUnused(&c->slots[i].path);
		u64 isBest = isEqual(c->slots[i].path.quality * x * x, s->best) & ~isUnused(&c->slots[i].path);
		s->large -= isLarge;
		s->collected -= isBest & ~isLarge;
	}
}

// increase returns by how much the window of own grows for each packet acknowledged, in packets / ONE.
NOINLINE s64 increase(const struct connection *c, const struct path *own, u32 algorithm)
{
	struct sums s = {};
	sum(&s, c);
	if (!own->window || !s.rates)
		return 0;
	u64 x = ratio(&s, own), rate = own->window * x;
	u64 total = s.rates * s.rates;
	u64 base = ((rate * x) << 22) / total; // (window/rtt²) / (sum of window/rtt)²
	if (algorithm == LIA) {
		u64 coupled = (s.maxSquare << 22) / total, alone = ONE / own->window;
		return coupled < alone ? coupled : alone;
	}
	if (algorithm == OLIA) {
		if (!s.collected)
			return base;
		if (own->window == s.window)
			return (s64)base - (s64)(ONE / (s.count * s.large * own->window));
		if (own->quality * x * x == s.best)
			return base + ONE / (s.count * s.collected * own->window);
		return base;
	}
	u64 alpha = (s.maxRate << 10) / rate; // 2^10
	if (alpha > 1 << 20)
		alpha = 1 << 20;
	return base * (1024 + alpha) / 2048 * (4096 + alpha) / 5120;
}

// afterLoss returns the window of own after a loss.
NOINLINE u32 afterLoss(const struct connection *c, const struct path *own, u32 algorithm)
{
	u64 alpha = 1024;
	if (algorithm == BALIA && own->window) {
		struct sums s = {};
		sum(&s, c);
		alpha = (s.maxRate << 10) / (own->window * ratio(&s, own));
		if (alpha > 1536)
			alpha = 1536;
	}
	u64 window = own->window - own->window * alpha / 2048;
	return window > 2 ? window : 2;
}

struct {
	__uint(type, 9); // BPF_MAP_TYPE_LRU_HASH
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, struct connection);
} connections SEC(".maps");

struct {
	__uint(type, 2); // BPF_MAP_TYPE_ARRAY
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct connection);
} empty SEC(".maps");

// findConnection returns the connection of an MPTCP subflow, or 0. With create it makes one.
INLINE struct connection *findConnection(struct sock *sk, _Bool create)
{
	struct tcp_sock *tp = (void *)sk;
	if (!tp->is_mptcp)
		return 0;
	struct mptcp_subflow_context *context = ((struct inet_connection_sock *)sk)->icsk_ulp_data;
	u32 token = 0, zero = 0;
	if (!context || bpf_probe_read_kernel(&token, sizeof(token), &context->token) || !token)
		return 0;
	struct connection *c = bpf_map_lookup_elem(&connections, &token);
	if (c || !create)
		return c;
	struct connection *none = bpf_map_lookup_elem(&empty, &zero);
	if (!none)
		return 0;
	bpf_map_update_elem(&connections, &token, none, 1); // BPF_NOEXIST
	return bpf_map_lookup_elem(&connections, &token);
}

// findSlot returns the slot of a subflow, a new one if it has none, or 0 if there is no room.
INLINE struct slot *findSlot(struct connection *c, struct sock *sk)
{
	u64 key = (u64)sk;
	for (int i = 0; i < MAX_PATHS; i++)
		if (c->slots[i].sk == key)
			return &c->slots[i];
	for (int i = 0; i < MAX_PATHS; i++)
		if (!c->slots[i].sk && !__sync_val_compare_and_swap(&c->slots[i].sk, 0, key))
			return &c->slots[i];
	return 0;
}

// ownPath returns what the formulas use of a subflow.
INLINE struct path ownPath(struct slot *s, struct tcp_sock *tp)
{
	u64 rtt = tp->srtt_us >> 3, window = tp->snd_cwnd, since = tp->bytes_acked - s->lossAt;
	u64 quality = (since > s->between ? since : s->between) / (tp->mss_cache ?: 1);
	struct path p = {
		.rtt = rtt ? rtt : 1,
		.window = window < 1 << 16 ? window : 1 << 16,
		.quality = quality < 1 << 25 ? quality : 1 << 25,
	};
	return p;
}

INLINE u32 threshold(struct sock *sk, u32 algorithm)
{
	struct tcp_sock *tp = (void *)sk;
	struct connection *c = findConnection(sk, 1);
	struct slot *s = c ? findSlot(c, sk) : 0;
	if (!s)
		return tcp_reno_ssthresh(sk);
	struct path own = ownPath(s, tp);
	s->path = own;
	u32 window = afterLoss(c, &own, algorithm);
	s->path.window = window; // the subflow may be silent for long
	if (tp->bytes_acked != s->lossAt) {
		s->between = tp->bytes_acked - s->lossAt;
		s->lossAt = tp->bytes_acked;
	}
	s->credit = 0;
	return window;
}

INLINE void avoid(struct sock *sk, u32 ack, u32 acked, u32 algorithm)
{
	struct tcp_sock *tp = (void *)sk;
	u32 window = tp->snd_cwnd, count = tp->snd_cwnd_cnt;
	_Bool slowStart = window < tp->snd_ssthresh;
	struct connection *c = findConnection(sk, 1);
	struct slot *s = c ? findSlot(c, sk) : 0;
	struct path own = {};
	if (s)
		s->path = own = ownPath(s, tp);
	// Reno does slow start, and leaves both as they are if the window was not used.
	tcp_reno_cong_avoid(sk, ack, acked);
	if (!s || slowStart || (tp->snd_cwnd == window && tp->snd_cwnd_cnt == count))
		return;
	tp->snd_cwnd_cnt = 0;
	s64 credit = s->credit + increase(c, &own, algorithm) * acked;
	if (credit >= ONE) {
		window += (u64)credit / ONE;
		credit = (u64)credit % ONE;
	} else if (credit <= -ONE) {
		credit += ONE;
		if (window > 2)
			window--;
	}
	tp->snd_cwnd = window;
	s->credit = credit;
	s->path.window = window < 1 << 16 ? window : 1 << 16;
}

SEC("struct_ops")
void coupled_state(u64 *args)
{
	struct sock *sk = (void *)args[0];
	if ((u8)args[1] != 4) // TCP_CA_Loss: a timeout
		return;
	struct connection *c = findConnection(sk, 0);
	struct slot *s = c ? findSlot(c, sk) : 0;
	if (s)
		s->path.window = 1; // until it is acknowledged again
}

SEC("struct_ops")
void coupled_release(u64 *args)
{
	struct sock *sk = (void *)args[0];
	struct connection *c = findConnection(sk, 0);
	u64 key = (u64)sk;
	for (int i = 0; c && i < MAX_PATHS; i++)
		if (c->slots[i].sk == key) {
			struct path none = {};
			c->slots[i].path = none;
			c->slots[i].lossAt = c->slots[i].between = c->slots[i].credit = 0;
			// From here on another subflow may take the slot.
			__sync_val_compare_and_swap(&c->slots[i].sk, key, 0);
		}
}

SEC("struct_ops")
u32 coupled_undo(u64 *args) { return tcp_reno_undo_cwnd((void *)args[0]); }

#define ALGORITHM(lower, upper)                                                                    \
	SEC("struct_ops") u32 lower##_ssthresh(u64 *args) { return threshold((void *)args[0], upper); }  \
	SEC("struct_ops") void lower##_avoid(u64 *args)                                                  \
	{                                                                                                \
		avoid((void *)args[0], args[1], args[2], upper);                                         \
	}                                                                                                \
	SEC(".struct_ops.link") struct tcp_congestion_ops lower = {                                      \
		.ssthresh = (void *)lower##_ssthresh,                                                    \
		.cong_avoid = (void *)lower##_avoid,                                                     \
		.undo_cwnd = (void *)coupled_undo,                                                       \
		.set_state = (void *)coupled_state,                                                      \
		.release = (void *)coupled_release,                                                      \
		.name = #lower,                                                                          \
	};

ALGORITHM(lia, LIA)
ALGORITHM(olia, OLIA)
ALGORITHM(balia, BALIA)

// Tests compare the formulas with those in Go.
struct step {
	struct connection connection;
	s64 increase;
	u32 algorithm, own, window;
};

struct {
	__uint(type, 2); // BPF_MAP_TYPE_ARRAY
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct step);
} steps SEC(".maps");

SEC("syscall")
int formulas(void *none)
{
	u32 zero = 0;
	struct step *step = bpf_map_lookup_elem(&steps, &zero);
	if (!step)
		return 1;
	struct path own = step->connection.slots[step->own % MAX_PATHS].path;
	step->increase = increase(&step->connection, &own, step->algorithm);
	step->window = afterLoss(&step->connection, &own, step->algorithm);
	return 0;
}

char licence[] SEC("license") = "Dual BSD/GPL";
