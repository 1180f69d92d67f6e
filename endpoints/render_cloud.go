package endpoints

import (
	"errors"
	"fmt"
	"strings"
)

// cloudTool is a program that manages endpoints in Temporal Cloud. There are two, with nearly the same commands.
type cloudTool struct {
	program     string
	autoConfirm bool // add --auto-confirm
	idempotent  bool // has --idempotent: an update that changes nothing then succeeds
	splitsLists bool // takes a comma in a list's flag for a separator
}

func (t cloudTool) render(spec Spec, options RenderOptions) (string, error) {
	if t.splitsLists {
		for _, caller := range spec.AllowedCallers {
			if strings.Contains(caller, ",") {
				return "", fmt.Errorf("%s: %s would split %q at the comma; give a Temporal Cloud namespace ID (name.account)", keyAllowedCallers, t.program, caller)
			}
		}
	}
	if !options.Update {
		command := t.command("create")
		command.flag("name", spec.Name)
		command.flag("target-namespace", spec.TargetNamespace)
		command.flag("target-task-queue", spec.TaskQueue)
		for _, caller := range spec.AllowedCallers {
			command.flag("allow-namespace", caller)
		}
		describe(&command, spec, options)
		return t.finish(command), nil
	}

	if spec.AllowedCallers != nil && len(spec.AllowedCallers) == 0 {
		return "", errors.New(`allowedCallers is empty, and "allowed-namespace set" needs at least one namespace; ` +
			`take them away one by one with "allowed-namespace remove", or use terraform`)
	}
	command := t.command("update")
	command.flag("name", spec.Name)
	command.flag("target-namespace", spec.TargetNamespace)
	command.flag("target-task-queue", spec.TaskQueue)
	describe(&command, spec, options)
	rendered := t.finishUpdate(command)

	// Callers are not part of the update command in either program.
	if len(spec.AllowedCallers) > 0 {
		callers := t.command("allowed-namespace set")
		callers.flag("name", spec.Name)
		for _, caller := range spec.AllowedCallers {
			callers.flag("namespace", caller)
		}
		rendered += t.finishUpdate(callers)
	}
	return rendered, nil
}

func (t cloudTool) command(verb string) shellCommand {
	return shellCommand{words: t.program + " nexus endpoint " + verb}
}

func (t cloudTool) finish(command shellCommand) string {
	if t.autoConfirm {
		command.bare("auto-confirm")
	}
	return command.String()
}

func (t cloudTool) finishUpdate(command shellCommand) string {
	if t.idempotent {
		command.bare("idempotent")
	}
	return t.finish(command)
}
