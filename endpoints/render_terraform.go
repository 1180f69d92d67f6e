package endpoints

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// renderTerraform writes one temporalcloud_nexus_endpoint resource, laid out as `terraform fmt` does.
func renderTerraform(spec Spec, _ RenderOptions) (string, error) {
	if spec.AllowedCallers == nil {
		return "", errors.New("allowedCallers is missing; Terraform manages the whole list and cannot leave it alone, so state it ([] allows nobody)")
	}
	var b strings.Builder
	// The rule for endpoint names allows no underscore, so two names never become the same label.
	fmt.Fprintf(&b, "resource \"temporalcloud_nexus_endpoint\" %s {\n", hclQuote(strings.ReplaceAll(spec.Name, "-", "_")))
	if spec.Description != nil && *spec.Description != "" {
		fmt.Fprintf(&b, "  name        = %s\n", hclQuote(spec.Name))
		fmt.Fprintf(&b, "  description = %s\n", hclQuote(*spec.Description))
	} else {
		fmt.Fprintf(&b, "  name = %s\n", hclQuote(spec.Name))
	}
	fmt.Fprintf(&b, "\n  worker_target = {\n    namespace_id = %s\n    task_queue   = %s\n  }\n", hclQuote(spec.TargetNamespace), hclQuote(spec.TaskQueue))
	if len(spec.AllowedCallers) == 0 {
		b.WriteString("\n  allowed_caller_namespaces = []\n")
	} else {
		b.WriteString("\n  allowed_caller_namespaces = [\n")
		for _, caller := range spec.AllowedCallers {
			fmt.Fprintf(&b, "    %s,\n", hclQuote(caller))
		}
		b.WriteString("  ]\n")
	}
	b.WriteString("}\n")
	return b.String(), nil
}

// hclQuote makes value a quoted template in HCL's native syntax (hashicorp/hcl, hclsyntax/spec.md, "Template
// Expressions"). A heredoc would be easier to read, but it cannot end without a newline and reads carriage returns and
// control characters as they stand.
//
// HCL normalises strings to Unicode NFC, so letters written with combining marks come out composed.
func hclQuote(value string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i, r := range value {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case (r == '$' || r == '%') && strings.HasPrefix(value[i+1:], "{"):
			// "${" and "%{" begin interpolation and directives; doubled, the sign is itself.
			b.WriteRune(r)
			b.WriteRune(r)
		case unicode.IsControl(r) || r == '\u2028' || r == '\u2029':
			// Escaped so that editors and diffs show them.
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
