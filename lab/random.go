// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/vary"
)

// Kinds of random networks, with the transfers over them.
const (
	RandomDown     = "down"     // stable links, objects down
	RandomUp       = "up"       // stable links, objects up
	RandomChanging = "changing" // links that fade, step or fail; one object
)

// RandomKinds are all kinds of random networks.
var RandomKinds = []string{RandomDown, RandomUp, RandomChanging}

// Ranges of random networks. Nothing in mpbond was tuned on networks of these seeds.
const (
	maxRandomHelpers   = 6
	minRandomMbps      = 0.3
	maxRandomMbps      = 100.0
	maxRandomSum       = 250.0 // Mbit/s that all links may carry at once: what the emulator can
	minRandomRTT       = 4 * time.Millisecond
	maxRandomRTT       = 700 * time.Millisecond
	minRandomQueue     = 20 * time.Millisecond
	maxRandomQueue     = 2 * time.Second
	minRandomQueueSize = 8 * packetIP
	maxRandomLoss      = 0.02
	minRandomLoss      = 0.001
	maxRandomJitter    = 20 * time.Millisecond
	minRandomSize      = 64 * unit.KB
	maxRandomSize      = 20 * unit.MB
	maxRandomBound     = 4 * time.Second // of one object
	minChangingBound   = 2 * time.Second // of the object over links that change
	randomLoop         = 20 * time.Second
	randomObjects      = 3
	maxRandomDraws     = 1000
)

// RandomSpec returns the network of a kind and seed, and its transfer: RunSpec without schemes and
// repetitions.
func RandomSpec(kind string, seed uint64) (p RunSpec, err error) {
	rng := vary.Rand(seed, "network/"+kind)
	for range maxRandomDraws {
		if p, err = drawRandomSpec(rng, kind); err != nil || p.Topology != nil {
			p.Seed = seed
			return p, err
		}
	}
	return p, fmt.Errorf("no network of kind %q and seed %d fits the emulator", kind, seed)
}

// ParseRandomSpec returns the network that text names: "KIND/SEED".
func ParseRandomSpec(text string) (RunSpec, error) {
	kind, number, _ := strings.Cut(text, "/")
	seed, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return RunSpec{}, fmt.Errorf("network %q: write KIND/SEED, like down/17, with a kind of %s", text,
			strings.Join(RandomKinds, ", "))
	}
	return RandomSpec(kind, seed)
}

// drawRandomSpec draws a network and its transfer. It returns no topology if they do not fit.
func drawRandomSpec(rng *rand.Rand, kind string) (p RunSpec, err error) {
	helpers := 1 + rng.IntN(maxRandomHelpers)
	t, err := Triangle("1/1/1" + strings.Repeat(",1/1", helpers-1))
	if err != nil {
		return p, err
	}
	lossy, jittery := rng.IntN(2) == 0, rng.IntN(3) == 0
	rates, usable := map[string]float64{}, map[string]float64{}
	for _, name := range t.Links() {
		l := t.Link[name]
		if name == "core" {
			continue
		}
		mbps, rtt := drawLogUniform(rng, minRandomMbps, maxRandomMbps), drawLogTime(rng, minRandomRTT, maxRandomRTT)
		if strings.HasPrefix(name, "pipe") {
			mbps, rtt = drawRandomPipe(rng)
		}
		rates[name] = mbps
		queue := max(minRandomQueueSize, unit.Rate(1e6*mbps).Bytes(drawLogTime(rng, minRandomQueue, maxRandomQueue)))
		l.Rate, l.Delay = fmt.Sprintf("%.3fMbit/s", mbps), (rtt / 2).Round(10*time.Microsecond).String()
		l.Queue = strconv.FormatInt(int64(queue), 10)
		usable[name] = mbps
		if loss := drawLogUniform(rng, minRandomLoss, maxRandomLoss); lossy && rng.IntN(2) == 0 {
			l.Loss = fmt.Sprintf("%.4f", loss)
			usable[name] = min(mbps, cubicRateMbps(rtt, loss))
		}
		if jitter := time.Duration(rng.Int64N(int64(min(maxRandomJitter, rtt)))); jittery && jitter > time.Millisecond {
			l.Jitter = jitter.Round(100 * time.Microsecond).String()
		}
	}
	sum, capacity := rates["ps"], usable["ps"] // Mbit/s that all links carry, and all paths
	for i := range helpers {
		hs, pipe := fmt.Sprint("hs", i+1), fmt.Sprint("pipe", i+1)
		sum, capacity = sum+2*min(rates[hs], rates[pipe]), capacity+min(usable[hs], usable[pipe])
	}
	size := unit.Bytes(drawLogUniform(rng, float64(minRandomSize), float64(maxRandomSize)))
	p = RunSpec{Size: size, Upload: kind == RandomUp, Objects: randomObjects}
	switch kind {
	case RandomDown, RandomUp:
	case RandomChanging:
		p.Upload, p.Objects = rng.IntN(2) == 0, 0
		drawChanges(rng, t, rates)
	default:
		return p, fmt.Errorf("no kind of networks %q; there are %s", kind, strings.Join(RandomKinds, ", "))
	}
	if float64(8*size)/1e6/capacity > 2*maxRandomBound.Seconds() {
		return RunSpec{}, nil // too long: the next draw may fit
	}
	bound, err := Bound(t, p.Size, p.Upload)
	if err != nil || sum > maxRandomSum || bound > 2*maxRandomBound ||
		kind != RandomChanging && bound > maxRandomBound || kind == RandomChanging && bound < minChangingBound {
		return RunSpec{}, t.Check()
	}
	p.Topology = t
	return p, t.Check()
}

// cubicRateMbps returns the mean rate of TCP with CUBIC over a link with random loss, if that
// limits it (RFC 9438, section 5; for short round trips that of Reno).
func cubicRateMbps(rtt time.Duration, loss float64) float64 {
	if loss <= 0 {
		return math.Inf(1)
	}
	window := max(1.054*math.Pow(rtt.Seconds()/loss, 0.75), 1.22/math.Sqrt(loss)) // packets
	return window * 8 * packetPayload / rtt.Seconds() / 1e6
}

// drawLogUniform draws from a log-uniform distribution.
func drawLogUniform(rng *rand.Rand, low, high float64) float64 {
	return low * math.Pow(high/low, rng.Float64())
}

func drawLogTime(rng *rand.Rand, low, high time.Duration) time.Duration {
	return time.Duration(drawLogUniform(rng, float64(low), float64(high)))
}

// drawRandomPipe draws a pipe: one in six is Bluetooth and one is Ethernet, the others are WLANs.
func drawRandomPipe(rng *rand.Rand) (mbps float64, rtt time.Duration) {
	switch rng.IntN(6) {
	case 0:
		return drawLogUniform(rng, 1, 2), drawLogTime(rng, 20*time.Millisecond, 50*time.Millisecond)
	case 1:
		return maxRandomMbps, time.Millisecond
	}
	return drawLogUniform(rng, 5, maxRandomMbps), drawLogTime(rng, 2*time.Millisecond, 20*time.Millisecond)
}

// drawChanges makes at least one link fade, step or fail, within the first randomLoop.
func drawChanges(rng *rand.Rand, t *Topology, rates map[string]float64) {
	names := t.Links()
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	changed := 0
	for _, name := range names {
		if name == "core" || changed > 0 && rng.IntN(3) > 0 {
			continue
		}
		changed++
		l := t.Link[name]
		from := time.Duration(rng.Int64N(int64(4 * time.Second))).Round(time.Millisecond)
		length := drawLogTime(rng, 300*time.Millisecond, 6*time.Second).Round(time.Millisecond)
		low := drawLogUniform(rng, 0.05, 0.6) * rates[name]
		change := func(at time.Duration, mbps float64) string {
			return fmt.Sprintf("at %v: rate %.3fMbit/s", at, mbps)
		}
		switch rng.IntN(4) {
		case 0: // a step, for good
			l.Schedule = []string{change(from, low)}
		case 1: // an outage
			l.Outages = []string{fmt.Sprintf("%v+%v", from, min(length, 3*time.Second))}
		case 2: // a fade and a recovery, in steps
			const steps = 8
			for i := range 2*steps + 1 {
				depth := 1 - math.Abs(float64(i)/steps-1)
				l.Schedule = append(l.Schedule, change(from+time.Duration(i)*length/(2*steps),
					rates[name]*math.Pow(low/rates[name], depth)))
			}
			l.Loop = randomLoop.String()
		case 3: // a carrier that varies
			p := vary.LTE(rng, unit.Rate(1e6*rates[name]), randomLoop)
			delay, _ := time.ParseDuration(l.Delay) // it was formatted above
			l.Schedule, l.Loop = p.Schedule(delay), randomLoop.String()
		}
	}
}

// SinglePaths returns the schemes of single paths that can be the best one: the fastest by the
// fluid model, and those that need at most worst times as long. Where links lose packets, a path
// has no more than the mean rate of CUBIC.
func (p RunSpec) SinglePaths(worst float64) (all []string, err error) {
	names := []string{"single"}
	for _, h := range p.Topology.Helpers() {
		names = append(names, "single:"+h)
	}
	var paths []singlePath
	for _, s := range names {
		path, err := p.newSinglePath(s)
		if err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	need, end := float64(p.Size)/PayloadShare, maxSingleTime
	done := make([]bool, len(names))
	for at := singleStep; at <= end; at += singleStep {
		for i, path := range paths {
			if !done[i] && path.cappedBytesUntil(at) >= need {
				if len(all) == 0 {
					end = min(end, time.Duration(worst*float64(at)))
				}
				all, done[i] = append(all, names[i]), true
			}
		}
	}
	if len(all) == 0 {
		return names[:1], nil
	}
	slices.Sort(all)
	return all, nil
}

// The search for single paths has this step and ends at this time.
const (
	singleStep    = 4 * time.Millisecond
	maxSingleTime = 2 * time.Minute
)

// singlePath is one path alone.
type singlePath struct {
	groups []*fluidGroup
	most   float64 // bytes a second that CUBIC sends where packets are lost
}

// newSinglePath returns the path of a scheme.
func (p RunSpec) newSinglePath(scheme string) (path singlePath, err error) {
	t, err := p.Topology.reducedTopology(schemeParticipants(p.Topology, scheme))
	if err != nil {
		return path, err
	}
	rtt, passed := time.Duration(0), 1.0
	for _, name := range t.Links() {
		if !t.Link[name].Shaped() {
			continue
		}
		program, err := t.Link[name].Program(Downlink)
		if err != nil {
			return path, err
		}
		rtt += 2 * program.Base.Delay
		passed *= 1 - program.Base.Loss
	}
	path.most = cubicRateMbps(rtt, 1-passed) * 1e6 / 8 / PayloadShare
	path.groups, err = t.fluidGroups(p.Upload)
	return path, err
}

// cappedBytesUntil returns the bytes that the path can have carried by a time.
func (s singlePath) cappedBytesUntil(at time.Duration) (sum float64) {
	for _, g := range s.groups {
		sum += g.groupBytesUntil(at)
	}
	return min(sum, s.most*at.Seconds())
}

// DescribeNetwork describes the transfer and each shaped link, a line each.
func (p RunSpec) DescribeNetwork() string {
	var b strings.Builder
	what, way := fmt.Sprint(p.Size), "down"
	if p.Objects > 0 {
		what = fmt.Sprintf("%d objects of %v", p.Objects, p.Size)
	}
	if p.Upload {
		way = "up"
	}
	fmt.Fprintf(&b, "%s, %s\n", what, way)
	w := newColumns(&b)
	for _, name := range p.Topology.Links() {
		l := p.Topology.Link[name]
		if !l.Shaped() {
			continue
		}
		fmt.Fprintf(w, "%s\t%s\tdelay %s\tqueue %s B", name, l.Rate, l.Delay, l.Queue)
		for _, x := range [][2]string{{"loss", l.Loss}, {"jitter", l.Jitter}, {"changes", strings.Join(l.Schedule, "; ")},
			{"outages", strings.Join(l.Outages, "; ")}} {
			if text := x[1]; text != "" {
				fmt.Fprintf(w, "\t%s %s", x[0], text[:min(len(text), maxDescribed)])
			}
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
	return b.String()
}

// maxDescribed is the largest part of a schedule that is shown.
const maxDescribed = 160
