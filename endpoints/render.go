package endpoints

import (
	"fmt"
	"strings"
)

// Format is what [Render] writes.
type Format string

const (
	// TemporalCLI is for a self-hosted server: `temporal operator nexus endpoint`.
	TemporalCLI Format = "temporal"
	// TemporalCloudCLI is for Temporal Cloud: `temporal cloud nexus endpoint`, the cloud extension of the Temporal CLI.
	TemporalCloudCLI Format = "temporal-cloud"
	// Tcld is for Temporal Cloud: `tcld nexus endpoint`.
	Tcld Format = "tcld"
	// Terraform is for Temporal Cloud: the resource temporalcloud_nexus_endpoint of the provider temporalio/temporalcloud.
	Terraform Format = "terraform"
)

// RenderOptions says what [Render] writes.
type RenderOptions struct {
	// Format is required.
	Format Format

	// Update makes commands that change an existing endpoint. The zero value makes commands that create one, which fail
	// if the name is taken. Terraform decides that for itself, so it makes no difference there.
	Update bool

	// AutoConfirm adds --auto-confirm to commands of TemporalCloudCLI, which otherwise ask before each change. Set it
	// when a shell reads the commands from a pipe: the question would take the next command for its answer. The other
	// formats have no such question.
	AutoConfirm bool
}

// Render writes specs as shell commands or Terraform configuration, ending with a newline. The order is that of specs.
//
// Commands are for a POSIX shell (sh, bash, dash, zsh). Any value of a valid spec reaches the program unchanged,
// whatever quotes, newlines, dollar signs, backticks or leading dashes it has.
//
// As everywhere, a spec that leaves out Description or AllowedCallers says nothing about them, so that an update has
// no flag for them. Two formats cannot do that or cannot do everything, and Render says so instead of writing
// something else:
//
//   - Terraform owns all of a resource: without a Description the endpoint has none, and AllowedCallers must be stated;
//   - the Cloud commands have no way to take the last caller away from an existing endpoint, so an Update with an
//     empty AllowedCallers is an error for them;
//   - a self-hosted server does not know AllowedCallers: TemporalCLI writes a comment that says so.
//
// Invalid specs give an [*InvalidSpecError].
func Render(specs []Spec, options RenderOptions) (string, error) {
	var render func(Spec, RenderOptions) (string, error)
	switch options.Format {
	case TemporalCLI:
		render = renderTemporal
	case TemporalCloudCLI:
		render = cloudTool{program: "temporal cloud", autoConfirm: options.AutoConfirm, idempotent: true}.render
	case Tcld:
		render = cloudTool{program: "tcld", splitsLists: true}.render
	case Terraform:
		render = renderTerraform
	default:
		return "", fmt.Errorf("render endpoints: unknown format %q; use %s, %s, %s or %s",
			options.Format, TemporalCLI, TemporalCloudCLI, Tcld, Terraform)
	}
	if err := Validate(specs); err != nil {
		return "", fmt.Errorf("render endpoints: %w", err)
	}
	var rendered []string
	for _, spec := range specs {
		text, err := render(spec, options)
		if err != nil {
			return "", fmt.Errorf("render endpoint %q as %s: %w", spec.Name, options.Format, err)
		}
		rendered = append(rendered, text)
	}
	return strings.Join(rendered, "\n"), nil
}
