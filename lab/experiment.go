package lab

// NewExperiment is an experiment of its own, outside the suite, whose transfers
// are those of a plan.
func NewExperiment(name string, p Plan) (Experiment, error) {
	e := Experiment{Name: name, Plan: p}
	return e, e.estimate()
}

// NewDualExperiment is likewise one of two users.
func NewDualExperiment(name string, d DualPlan) (Experiment, error) {
	e := Experiment{Name: name, Group: Dual, Dual: &d, Plan: Plan{Schemes: d.schemes(), Size: d.Size, Reps: d.Reps, Seed: d.Seed}}
	var err error
	if e.Plan.Topology, err = d.topology(); err != nil {
		return e, err
	}
	return e, e.estimate()
}
