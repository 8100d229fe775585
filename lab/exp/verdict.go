// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"mpbond/lab"
)

// Point is one value that a paper publishes, or a claim of mpbond.
type Point struct {
	What, Unit    string
	Low, High     float64 // published; equal, or a range
	PublishedText string  // what is published if it is not a value
	Aim           Aim
	// IsLimit says that Low or High is a limit, ours or published, and not a published value: a
	// measured value needs to meet it and not to be near it.
	IsLimit bool
	// IsFitted says that rates or constants were chosen so that the value comes out. To measure it
	// again shows nothing.
	IsFitted bool
	Of       func(Data) []float64 // measured, one value for each repetition
	// Cases makes the point a claim of mpbond instead, if set. Each case must be at least Low (with
	// AimAtLeast) or at most High (AimAtMost).
	Cases func(Data) []Case
}

// Case is one case of a claim.
type Case struct {
	Cell    string
	Name    string // scheme or user in the cell, if it is not the product
	Value   float64
	Text    string // the measured value for people
	Missing bool   // nothing was measured
}

// qualifiedName returns the cell and name of the case.
func (c Case) qualifiedName() string {
	if c.Name == "" {
		return c.Cell
	}
	return c.Cell + ": " + c.Name
}

// Aim decides which measured values confirm a published one.
type Aim int

// Aims.
const (
	AimAtMost       Aim = iota // at most the published value, or the range's upper end
	AimReduction               // a change in percent, at most the published one; 0 is no effect
	AimAnyReduction            // a change in percent without a published value: surely below 0
	AimNear                    // the published value, neither more nor less, such as of a baseline
	AimAtLeast                 // at least the published value, or the range's lower end
	AimIncrease                // a change in percent, at least the published one; 0 is no effect
	AimFactor                  // a factor, at least the published one; 1 is no effect
	AimFraction                // a fraction, at most the published one; 1 is no effect
	AimSign                    // a change in percent of which a sign is published: Low is 1, 0 or -1
	AimNotMore                 // the same, but all that is published is that it is no increase
	AimNotLess                 // the same, but all that is published is that it is no decrease
)

// isReductionAim reports whether the effect is a value below noEffect.
func (a Aim) isReductionAim() bool {
	return a == AimReduction || a == AimAnyReduction || a == AimFraction
}

// isIncreaseAim reports whether the effect is a value above noEffect.
func (a Aim) isIncreaseAim() bool { return a == AimIncrease || a == AimFactor }

// noEffect returns the value that stands for no effect.
func (a Aim) noEffect() float64 {
	if a == AimFactor || a == AimFraction {
		return 1
	}
	return 0
}

// Tolerances are our choice: papers give none.
const (
	// limitTolerance is how near a value must be to a limit with AimNear.
	limitTolerance = 0.15
	// valueTolerance is how near a value must be to a published one to count as reproduced although
	// its interval does not include that. Of a change, an effect may differ by that much.
	valueTolerance = 0.10
	// maxUncertainty is the largest half of an interval, as a share of the value or effect. With
	// more, a mean says nothing.
	maxUncertainty = 0.5
)

// Verdict is the verdict on a point or row.
type Verdict string

// Verdicts, the best first.
const (
	Reproduced    Verdict = "reproduced"         // the published direction and, nearly, value
	Exceeded      Verdict = "exceeded"           // surely more of the effect, or a better value
	Fitted        Verdict = "fitted"             // as published, since our networks were fitted to it
	DirectionOnly Verdict = "direction only"     // surely an effect, but less than published
	NotReproduced Verdict = "not reproduced"     // no effect outside the noise, or another value
	Opposite      Verdict = "opposite, surely"   // a change that surely goes the other way
	NotMeasured   Verdict = "not fully measured" // transfers are missing
)

// NoClaim is the verdict on rows without points.
const NoClaim Verdict = "nothing is claimed"

var verdicts = []Verdict{Reproduced, Exceeded, Fitted, DirectionOnly, NotReproduced, Opposite, NotMeasured}

// isAsPublished reports whether the verdict needs no explanation.
func (v Verdict) isAsPublished() bool { return v == Reproduced || v == Exceeded || v == Fitted }

// Outcome is a point with its measured values.
type Outcome struct {
	Point
	Stat
	Verdict         Verdict
	missed, missing []string // of a claim
}

func (o Outcome) toPointLine() PointLine {
	return PointLine{o.What, o.Unit, o.Published(), o.Stat, o.Verdict, o.missed, o.missing, o.Cases != nil}
}

// Published returns the published value as text.
func (p Point) Published() string {
	if p.PublishedText != "" {
		return p.PublishedText
	}
	if p.Low == p.High {
		return fmt.Sprintf("%g %s", p.Low, p.Unit)
	}
	return fmt.Sprintf("%g…%g %s", p.Low, p.High, p.Unit)
}

// evaluatePoint evaluates a point.
func (p Point) evaluatePoint(d Data) Outcome {
	if p.Cases != nil {
		return p.evaluateClaim(d)
	}
	o := Outcome{Point: p, Stat: Summarize(p.Of(d))}
	if o.Verdict = p.evaluateStat(o.Stat); p.IsFitted && o.Verdict.isAsPublished() {
		o.Verdict = Fitted
	}
	return o
}

// evaluateStat returns the verdict on measured values, without regard to IsFitted.
func (p Point) evaluateStat(s Stat) Verdict {
	if s.N == 0 {
		return NotMeasured
	}
	if p.Aim == AimSign || p.Aim == AimNotMore || p.Aim == AimNotLess {
		return p.evaluateSign(s)
	}
	low, high := s.confidenceInterval()
	none := p.Aim.noEffect()
	surelyEffect := p.Aim.isReductionAim() && high < none || p.Aim.isIncreaseAim() && low > none
	surelyOpposite := p.Aim.isReductionAim() && low > none || p.Aim.isIncreaseAim() && high < none
	// A single value has no interval: it is taken as it is, and Caution says so.
	hasDirection := !p.publishesEffect() || surelyEffect || s.N == 1 && p.isOnAimSideOf(s.Mean, none)
	switch {
	case p.Aim == AimAnyReduction && surelyEffect:
		return Reproduced
	case p.Aim == AimAnyReduction:
	case p.IsLimit && hasDirection && p.meetsLimit(s.Mean) && p.staysInLimit(s):
		return Reproduced
	case p.IsLimit:
	case hasDirection && p.hasNarrowInterval(s) && p.isNearPublished(s):
		return Reproduced
	case hasDirection && p.hasNarrowInterval(s) && p.exceedsPublished(s):
		return Exceeded
	}
	switch {
	case surelyOpposite:
		return Opposite
	case surelyEffect && p.publishesEffect() && p.Aim != AimAnyReduction:
		return DirectionOnly
	}
	return NotReproduced
}

// sameTolerance is the largest change, in percent, that counts as none where signs are published.
const sameTolerance = 5

// signOf returns the sign of a change in percent: 0 if it is within sameTolerance or its interval
// includes 0.
func signOf(s Stat) float64 {
	low, high := s.confidenceInterval()
	switch {
	case math.Abs(s.Mean) <= sameTolerance || s.N > 1 && low <= 0 && high >= 0:
		return 0
	case s.Mean > 0:
		return 1
	}
	return -1
}

// evaluateSign returns the verdict on a change of which a sign is published.
func (p Point) evaluateSign(s Stat) Verdict {
	sign := signOf(s)
	switch {
	case p.Aim == AimNotMore && sign <= 0, p.Aim == AimNotLess && sign >= 0, p.Aim == AimSign && sign == p.Low:
		return Reproduced
	case p.Aim == AimSign && sign*p.Low < 0:
		return Opposite
	}
	return NotReproduced
}

// publishesEffect reports whether the published value, or limit, has a direction: all of it is on
// one side of no effect.
func (p Point) publishesEffect() bool {
	none := p.Aim.noEffect()
	switch {
	case p.Aim == AimAnyReduction:
		return true
	case p.IsLimit && p.Low == none && p.High == none: // more, or less
		return p.Aim.isReductionAim() || p.Aim.isIncreaseAim()
	}
	return p.Aim.isReductionAim() && p.High < none || p.Aim.isIncreaseAim() && p.Low > none
}

// isOnAimSideOf reports whether a value is on the aim's side of another one.
func (p Point) isOnAimSideOf(v, other float64) bool {
	switch p.Aim {
	case AimAtMost, AimReduction, AimAnyReduction, AimFraction:
		return v < other
	case AimAtLeast, AimIncrease, AimFactor:
		return v > other
	}
	return false
}

// toleranceScale returns what tolerances of a value are relative to: its effect if it is less.
func (p Point) toleranceScale(v float64) float64 {
	size := math.Abs(v)
	if p.publishesEffect() {
		size = min(size, math.Abs(v-p.Aim.noEffect()))
	}
	return size
}

// hasNarrowInterval reports whether the interval is narrow enough for the mean to say something. Of
// single values this is not known.
func (p Point) hasNarrowInterval(s Stat) bool {
	return s.N == 1 || s.Half <= maxUncertainty*p.toleranceScale(s.Mean)
}

// isNearPublished reports whether the mean is near the published range, or the interval overlaps
// it.
func (p Point) isNearPublished(s Stat) bool {
	if s.Mean >= p.Low-valueTolerance*p.toleranceScale(p.Low) && s.Mean <= p.High+valueTolerance*p.toleranceScale(p.High) {
		return true
	}
	low, high := s.confidenceInterval()
	return s.N > 1 && low <= p.High && high >= p.Low
}

// exceedsPublished reports whether the whole interval is beyond the published range on the aim's
// side.
func (p Point) exceedsPublished(s Stat) bool {
	weaker, best := s.Mean+s.Half, p.Low
	if p.Aim.isIncreaseAim() || p.Aim == AimAtLeast {
		weaker, best = s.Mean-s.Half, p.High
	}
	return p.isOnAimSideOf(weaker, best)
}

// staysInLimit reports whether the interval leaves no doubt that a limit is met: it meets the limit
// as a whole, or is narrow.
func (p Point) staysInLimit(s Stat) bool {
	if s.N == 1 || p.meetsLimit(s.Mean-s.Half) && p.meetsLimit(s.Mean+s.Half) {
		return true
	}
	return s.Half <= maxUncertainty*max(math.Abs(p.Low), math.Abs(p.High))
}

// evaluateClaim evaluates a claim. One case that does not hold refutes it.
func (p Point) evaluateClaim(d Data) Outcome {
	o := Outcome{Point: p, Verdict: Reproduced}
	for _, c := range p.Cases(d) {
		if c.Missing {
			o.missing = append(o.missing, c.qualifiedName())
			continue
		}
		if o.N++; !p.meetsLimit(c.Value) {
			o.missed = append(o.missed, c.qualifiedName()+": "+c.Text)
		}
	}
	if o.N > 0 {
		o.Mean = 100 * float64(o.N-len(o.missed)) / float64(o.N)
	}
	switch {
	case len(o.missed) > 0:
		o.Verdict = NotReproduced
	case o.N == 0 || len(o.missing) > 0:
		o.Verdict = NotMeasured
	}
	return o
}

// withoutMissingCells returns the row without claims, and cases of claims, in cells that a run did
// not have.
func (r Row) withoutMissingCells(rec Record) Row {
	all := r.Points
	r.Points = nil
	for _, p := range all {
		if whole := p.Cases; whole != nil {
			p.Cases = func(d Data) []Case {
				return slices.DeleteFunc(whole(d), func(c Case) bool { return c.Missing && rec.Cells[c.Cell] == 0 })
			}
			if len(p.Cases(rec.Results)) == 0 {
				continue
			}
		}
		r.Points = append(r.Points, p)
	}
	return r
}

// meetsLimit reports whether a value meets the limit, or a case its claim.
func (p Point) meetsLimit(mean float64) bool {
	switch p.Aim {
	case AimNear:
		return mean >= (1-limitTolerance)*p.Low && mean <= (1+limitTolerance)*p.High
	case AimAtLeast, AimIncrease, AimFactor:
		return mean >= p.Low
	}
	return mean <= p.High
}

// EvaluatePoints evaluates all points of a row, and the row, which is as good as its worst point.
func (r Row) EvaluatePoints(d Data) (all []Outcome, row Verdict) {
	if len(r.Points) == 0 {
		return nil, NoClaim
	}
	worst := 0
	for _, p := range r.Points {
		o := p.evaluatePoint(d)
		all = append(all, o)
		for i, v := range verdicts {
			if v == o.Verdict {
				worst = max(worst, i)
			}
		}
	}
	if verdicts[worst] == Opposite {
		return all, NotReproduced
	}
	return all, verdicts[worst]
}

// WorseResult is where the product is worse than another scheme, outside the noise.
type WorseResult struct {
	Cell, Ours, Other string
	Metric            Metric
	Stat              // percent
}

func (b WorseResult) String() string {
	if b.Metric.Name == Time.Name {
		return fmt.Sprintf("%s: %s %s slower than %s", b.Cell, b.Ours, b.Text("%"), b.Other)
	}
	return fmt.Sprintf("%s: %s is worse with %s than with %s: %s", b.Cell, b.Metric.Name, b.Ours, b.Other, b.Text("%"))
}

// Product is the scheme that users get by default.
const Product = "mpbond"

// WorseThan lists for each cell or group of cells the schemes that are better than the product, in
// the row's first metric and its first energy. The 95 % interval of the change decides. Variants of
// mpbond count; of fixed ratios only the best one.
func (r Row) WorseThan(d Data) (all []WorseResult) {
	for _, m := range r.comparedMetrics() {
		for _, group := range r.cellGroups() {
			best := d.bestScheme(group[0].Name, group[0].listRatioSchemes(), Time)
			for _, pair := range group[0].schemePairs(r.evaluatedScheme()) {
				if isRatioScheme(pair[1]) && pair[1] != best {
					continue
				}
				changes := d.pairedChanges(listCellNames(group), pair, m)
				if r.Places {
					changes = ratiosToPercent(d.medianRatios(listCellNames(group), pair, m))
				}
				s := Summarize(changes)
				if low, high := s.confidenceInterval(); s.N > 0 && (!m.More && low > 0 || m.More && high < 0) {
					all = append(all, WorseResult{cellGroupName(group), pair[0], pair[1], m, s})
				}
			}
		}
	}
	return all
}

// evaluatedScheme returns the scheme that is evaluated.
func (r Row) evaluatedScheme() string {
	if r.Judged != "" {
		return r.Judged
	}
	return Product
}

// comparedMetrics returns the row's first metric and the first that is an energy or has
// alsoCompared.
func (r Row) comparedMetrics() []Metric {
	i := slices.IndexFunc(r.Metrics, func(m Metric) bool { return m.energySet != nil || m.alsoCompared })
	if i <= 0 {
		return r.Metrics[:1]
	}
	return []Metric{r.Metrics[0], r.Metrics[i]}
}

// pairedChanges returns the changes of several cells; for a metric in percent, the differences in
// points.
func (d Data) pairedChanges(cells []string, pair [2]string, m Metric) (all []float64) {
	if m.Unit != "%" {
		return d.PooledChanges(cells, pair, m)
	}
	for _, c := range cells {
		all = append(all, d.Differences(c, pair, m)...)
	}
	return all
}

// NotSurelyFaster lists where the product's time is not surely less than that of kernel MPTCP, its
// best fixed ratio, or COMBINE with its best chunk size, where at least two transfers of each
// count. It is empty for rows of other metrics.
func (r Row) NotSurelyFaster(d Data) []string {
	list := []string{}
	if r.Metrics[0].Name != Time.Name {
		return list
	}
	for _, c := range r.Cells {
		if !slices.Contains(c.Schemes, Product) {
			continue
		}
		for _, other := range []string{mptcp, d.bestScheme(c.Name, c.listRatioSchemes(), Time),
			d.bestScheme(c.Name, combineSchemes, Time)} {
			s := Summarize(d.Changes(c.Name, [2]string{Product, other}, Time))
			if _, high := s.confidenceInterval(); s.N > 1 && high >= 0 {
				list = append(list, fmt.Sprintf("%s: %s relative to %s", c.Name, s.Text("%"), other))
			}
		}
	}
	return list
}

// cellGroups returns the row's cells, with those of each group in Groups together. All cells of a
// group have the schemes of the first.
func (r Row) cellGroups() (all [][]Cell) {
	at := map[string]int{} // by cell, the index of its group
	for _, c := range r.Cells {
		i, known := at[c.Name]
		if known {
			all[i] = append(all[i], c)
			continue
		}
		for _, together := range r.Groups {
			if slices.Contains(together, c.Name) {
				for _, name := range together {
					at[name] = len(all)
				}
			}
		}
		all = append(all, []Cell{c})
	}
	return all
}

func listCellNames(cells []Cell) (all []string) {
	for _, c := range cells {
		all = append(all, c.Name)
	}
	return all
}

func cellGroupName(group []Cell) string {
	if len(group) == 1 {
		return group[0].Name
	}
	return fmt.Sprintf("%s to %s", group[0].Name, group[len(group)-1].Name)
}

// schemePairs returns ours, usually the product, with each other scheme of the cell. For two users
// it returns each one with mpbond and without.
func (c Cell) schemePairs(ours string) (all [][2]string) {
	if c.Dual != nil {
		for _, user := range lab.DualUsers {
			all = append(all, dualSchemePair(user))
		}
		return all
	}
	for _, other := range c.Schemes {
		if other != ours {
			all = append(all, [2]string{ours, other})
		}
	}
	return all
}

func missingText(n, of int) string { return fmt.Sprintf("%d of %d figures are not measured", n, of) }

// VerdictLine returns a row's verdict with its reasons.
func (r Row) VerdictLine(d Data) string {
	outcomes, v := r.EvaluatePoints(d)
	var why []string
	missing := 0
	for _, o := range outcomes {
		switch {
		case o.Verdict.isAsPublished():
		case o.Verdict == NotMeasured:
			missing++
		default:
			why = append(why, o.toPointLine().String())
		}
	}
	if missing > 0 {
		why = append(why, missingText(missing, len(outcomes)))
	}
	if len(why) == 0 {
		return string(v)
	}
	return string(v) + ": " + strings.Join(why, "; ")
}

// IsCounted reports whether a transfer counts as a measurement.
func IsCounted(r lab.Result) bool { return !r.Disturbed && r.Error == "" }
