package lab

// NewExperiment is an experiment of its own, outside the suite, whose transfers
// are those of a plan.
func NewExperiment(name string, p Plan) (Experiment, error) {
	e := Experiment{Name: name, Plan: p}
	return e, e.estimate()
}
