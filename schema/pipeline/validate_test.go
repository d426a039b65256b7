package pipeline

// validate reports whether a stream keeps the strict subset.
func validate(stream []byte) error {
	_, err := Parse(stream)
	return err
}
