package endpoints

// renderTemporal writes `temporal operator nexus endpoint create` or `update`. The update of the CLI patches: what has
// no flag stays as it is.
func renderTemporal(spec Spec, options RenderOptions) (string, error) {
	command := shellCommand{words: "temporal operator nexus endpoint create"}
	if options.Update {
		command.words = "temporal operator nexus endpoint update"
	}
	command.flag("name", spec.Name)
	command.flag("target-namespace", spec.TargetNamespace)
	command.flag("target-task-queue", spec.TaskQueue)
	describe(&command, spec, options)

	rendered := command.String()
	if spec.AllowedCallers != nil {
		rendered = unenforcedComment(spec.AllowedCallers) + rendered
	}
	return rendered, nil
}

// unenforcedComment tells whoever reads the commands that the endpoint will be open. An interactive zsh takes "#" for a
// command unless told otherwise, so the text is quoted, and plain enough to do nothing but fail there.
func unenforcedComment(callers []string) string {
	comment := "# " + keyAllowedCallers
	for _, caller := range callers {
		comment += " " + shellQuote(caller)
	}
	if len(callers) == 0 {
		comment += " nobody"
	}
	return comment + ": not enforced by a self-hosted server, where every namespace can call the endpoint\n"
}

// describe adds the flag for the description, which all three programs call the same. They take an empty --description
// for none at all, so clearing one has its own flag.
func describe(command *shellCommand, spec Spec, options RenderOptions) {
	switch {
	case spec.Description == nil:
	case *spec.Description != "":
		command.flag("description", *spec.Description)
	case options.Update:
		command.bare("unset-description")
	}
}
