package lte

import "math"

// Every word has an RNTI, as that is what its CRC does not explain. So the best word
// for anything looks like a message to somebody, if its place is in his search space
// and its fields can be. It is believed by its odds alone: how much likelier the soft
// bits are if it was sent than if it was not, as a natural logarithm, less that of how
// many words there were to choose from. Neither the noise nor the power of the channel
// is taken to be what the reference signals say: they say only how much one soft bit
// is worth against another of the same place. What was not sent, be it noise or a word
// of somebody else, has odds below 0, whatever the level, size and power.

// acceptOdds is what odds must be: of words for which they are no better one in ten at
// most is by chance.
var acceptOdds = math.Log(10)

// Among all RNTIs those that need no user are few, as are the users who are known. A
// word by chance has one of them as much less often.
const (
	rntiLogOdds   = 16 * math.Ln2
	reservedRNTIs = float64(maxRARNTI + 2)
)

// minCandidateOdds is what the odds of a word are at least that can be believed of anybody.
var minCandidateOdds = acceptOdds - rntiLogOdds

// burstAllowance is how much of the weight of a word's soft bits may be against it although
// they look all alike: what another cell sends is not spread evenly, as noise is. It
// only saves time.
const burstAllowance = 0.03

// locationStats is what the soft bits of a place say, whatever word is there. A soft bit is
// 2αγ in the mean with a variance of 4γν: γ is known from the reference signals, but
// not α and ν, which were 1 if these said all.
type locationStats struct {
	bits   float64
	power  float64 // sum of γ
	energy float64 // sum of the squares over 4γ
	weight float64 // half the sum of the weights
}

func measureLocation(elements []cceStats) (s locationStats) {
	for i := range elements {
		e := &elements[i]
		s.bits += bitsPerCCE
		s.power += e.power
		s.energy += e.energy
		s.weight += e.weight
	}
	return s
}

// expectedFit is what part of the weight a word that was sent explains at least. How much
// alike the soft bits are tells how many of them noise turned round: if it can be none,
// a word that many are against was not sent.
func (s *locationStats) expectedFit(elements []cceStats) float64 {
	uniformity := s.weight / math.Sqrt(s.power*s.energy)
	uniformity = 1 - (1-uniformity)*(1+2*math.Sqrt(2/s.bits)) // by two deviations
	scale := s.bits / (s.power * noiseForUniformity(uniformity))
	var lost, spread, all float64
	for i := range elements {
		for _, gamma := range &elements[i].gammas {
			l, v := flippedBitWeight(gamma * scale)
			lost += l
			spread += v
			all += gamma*scale + l
		}
	}
	// Four deviations, and as the weight of few bits is not normal, one bit more that is
	// wrong by as much as one in fifty is.
	return 1 - (8*lost+4*math.Sqrt(8*spread)+8)/(8*all) - 2*burstAllowance
}

// noiseForUniformity is the noise of bits of power 1 that are so much alike: the mean of their
// weight is that part of the root of the mean of their squares.
func noiseForUniformity(uniformity float64) float64 {
	at := (1 - uniformity) * float64(len(uniformityTable)-1) / (1 - noiseUniformity)
	if i := int(at); at >= 0 && i < len(uniformityTable)-1 {
		return uniformityTable[i] + (at-float64(i))*(uniformityTable[i+1]-uniformityTable[i])
	}
	return maxBitNoise // or no number
}

// noiseUniformity is how much alike the weights of noise are. Bits under maxBitNoise cannot be
// told from it.
const (
	noiseUniformity = 0.79788456 // the root of 2/π
	maxBitNoise     = 100.0
)

// uniformityTable is unlike from 1 down to noiseUniformity.
var uniformityTable = func() (all [257]float64) {
	for i := range all {
		alike := 1 - (1-noiseUniformity)*float64(i)/float64(len(all)-1)
		low, high := 0.0, maxBitNoise
		for range 40 {
			noise := (low + high) / 2
			if lost, _ := flippedBitWeight(1 / noise); (1/noise+lost)*noise/math.Sqrt(1+noise) > alike {
				low = noise
			} else {
				high = noise
			}
		}
		all[i] = high
	}
	return
}()

// requiredFit is what part of the weight a word must explain at least if there is to be so
// much evidence: all else would be noise.
func (s *locationStats) requiredFit(evidence float64) float64 {
	return math.Sqrt((1-math.Exp(-2*max(evidence, 0)/s.bits))*s.power*s.energy) / s.weight
}

// likelihoodGain is by how much the soft bits are likelier if a word was sent than if each
// bit is by chance, both of the power and with the noise that make the word likeliest:
// ln 2 for each bit at most. coded are the word's bits in some order, agreement is what
// part of the weight they explain.
//
// There is none if not both halves speak for the word: then half the place has one,
// and the other something else.
func (s *locationStats) likelihoodGain(soft []float32, coded []byte, order []int, agreement float64) (sum float64) {
	fit := agreement * s.weight
	alpha := fit / s.power
	noise := max(s.energy-alpha*fit, 1e-9*s.energy) / s.bits
	scale := alpha / noise
	at, n := 0, len(soft)/2
	for _, part := range [...][]float32{soft[:n], soft[n:]} {
		var half float64
		for _, b := range part {
			x := float64(b) * scale
			if coded[order[at]] == 1 {
				x = -x
			}
			half += bitLikelihoodGain(x)
			if at++; at == len(order) {
				at = 0
			}
		}
		if len(soft) > bitsPerCCE && !(half >= acceptOdds) {
			return 0
		}
		sum += half
	}
	return sum
}

// bitLikelihoodGain is how much likelier a bit is than by chance, whose log likelihood ratio is x.
func bitLikelihoodGain(x float64) float64 {
	at := (x + maxBitLLR) * bitGainSteps
	if !(at >= 0) {
		return math.Ln2 + x
	}
	if i := int(min(at, float64(len(bitGainTable)))); i < len(bitGainTable)-1 {
		return bitGainTable[i] + (at-float64(i))*(bitGainTable[i+1]-bitGainTable[i])
	}
	return math.Ln2
}

const (
	maxBitLLR    = 16 // beyond it a straight line does
	bitGainSteps = 32 // to 1, so that hundreds of bits are wrong by a hundredth
)

var bitGainTable = func() (all [2*maxBitLLR*bitGainSteps + 1]float64) {
	for i := range all {
		all[i] = math.Ln2 - math.Log1p(math.Exp(maxBitLLR-float64(i)/bitGainSteps))
	}
	return
}()

// logAlternatives is the logarithm of how many words of so many bits can be at a place, over how
// likely it is that one was sent: a place that is full holds something, as likely of
// one level and size as of another.
func (b *blindDecoder) logAlternatives(bits int, at cceLocation) float64 {
	users := min(1, float64(candidateCount(at.level))/float64(at.cces/at.level)) // who can be sent something there
	return float64(bits)*math.Ln2 + math.Log(users*float64(len(aggregationLevels)*len(b.candidateSizes)))
}
