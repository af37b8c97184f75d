package core

// Alone reports whether charge i decides alone: see [Charge].Alone.
func (d *Decision) Alone(i int) bool { return d.alone>>i&1 != 0 }

// SetAlone notes that charge i decides alone.
func (d *Decision) SetAlone(i int) { d.alone |= 1 << i }

// Took reports whether charge i was taken: whether the request was admitted or,
// if the charge decides alone, whether it fit. A charge of cost 0 took nothing
// all the same.
func (d *Decision) Took(i int) bool {
	if d.Alone(i) {
		return d.Outcomes()[i].Fits()
	}
	return d.Allowed
}

var _ [16 - MaxCharges]struct{} // Decision.alone has a bit for each charge
