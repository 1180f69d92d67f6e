package caller

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
)

// The types of package mcp leave some values open, as any or map[string]any,
// and decode the numbers in them to float64, which changes some of them. What
// follows keeps those as json.Number. Most results have none and are decoded as
// usual. In one that has, each such number is replaced by a marked string,
// package mcp decodes the result, and the marked strings in it become numbers.

// openKeys are the keys in MCP results under which package mcp puts no type on
// the value.
var openKeys = map[string]bool{
	"_meta":             true,
	"structuredContent": true, // CallToolResult, ToolResultContent
	"inputSchema":       true, // Tool
	"outputSchema":      true, // Tool
	"input":             true, // ToolUseContent
	"metadata":          true, // CreateMessageParams
	"requestedSchema":   true, // ElicitParams
	"experimental":      true, // ServerCapabilities
	"extensions":        true, // ServerCapabilities
}

// In open values, every string that begins with mark has one more letter after
// it which says whether it stands for a number or for itself.
const (
	mark       = "\x00nexusmcp:"
	markNumber = mark + "n"
	markString = mark + "s"
)

// exactDigits is how many significant decimal digits a float64 always keeps.
const exactDigits = 15

// hasInexactNumber reports whether raw, which is valid JSON, has a number that
// a float64 would change.
func hasInexactNumber(raw []byte) bool {
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			for i++; i < len(raw) && raw[i] != '"'; i++ {
				if raw[i] == '\\' {
					i++
				}
			}
		case c == '-' || '0' <= c && c <= '9':
			start := i
			for i < len(raw) && strings.IndexByte("+-.eE0123456789", raw[i]) >= 0 {
				i++
			}
			if inexact(string(raw[start:i])) {
				return true
			}
			i-- // the loop steps over what ended the number
		}
	}
	return false
}

// inexact reports whether a float64 would change the value that number writes.
func inexact(number string) bool {
	if len(number) <= exactDigits && !strings.ContainsAny(number, "eE") {
		return false
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return true // beyond the largest
	}
	digits, exponent := decimal(number)
	keptDigits, keptExponent := decimal(strconv.FormatFloat(f, 'e', -1, 64))
	return digits != keptDigits || exponent != keptExponent
}

// decimal returns a JSON number's significant digits and the power of ten of
// the last one, which are the same for all ways to write a value.
func decimal(number string) (digits string, exponent int) {
	mantissa, power, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(number, "-")), "e")
	// An exponent that is no int belongs to a number that is zero or that
	// ParseFloat has refused.
	exponent, _ = strconv.Atoi(power)
	whole, fraction, _ := strings.Cut(mantissa, ".")
	exponent -= len(fraction)
	digits = strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "", 0
	}
	trimmed := strings.TrimRight(digits, "0")
	return trimmed, exponent + len(digits) - len(trimmed)
}

// unmarshalExactly is json.Unmarshal that keeps in open values the numbers that
// a float64 would change.
func unmarshalExactly(raw []byte, result any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return err
	}
	marked, err := json.Marshal(markInexact(tree, false))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(marked, result); err != nil {
		return err
	}
	unmark(reflect.ValueOf(result))
	return nil
}

// markInexact replaces in tree the numbers of open values that need it.
func markInexact(tree any, open bool) any {
	switch v := tree.(type) {
	case map[string]any:
		for key, value := range v {
			if requests, ok := value.(map[string]any); ok && key == "inputRequests" {
				// Their names are the server's, and mean nothing here.
				for name, request := range requests {
					requests[name] = markInexact(request, open)
				}
				continue
			}
			v[key] = markInexact(value, open || openKeys[key])
		}
	case []any:
		for i, value := range v {
			v[i] = markInexact(value, open)
		}
	case json.Number:
		if open && inexact(v.String()) {
			return markNumber + v.String()
		}
	case string:
		if open && strings.HasPrefix(v, mark) {
			return markString + v
		}
	}
	return tree
}

// unmark undoes markInexact in a decoded result.
func unmark(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			unmark(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				unmark(v.Field(i))
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return // a blob, perhaps a large one
		}
		for i := range v.Len() {
			unmark(v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if s, ok := v.MapIndex(key).Interface().(string); ok {
				if value, marked := unmarked(s); marked && v.Type().Elem().Kind() == reflect.Interface {
					v.SetMapIndex(key, reflect.ValueOf(value))
				}
				continue
			}
			unmark(v.MapIndex(key))
		}
	case reflect.Interface:
		if s, ok := v.Interface().(string); ok {
			if value, marked := unmarked(s); marked {
				v.Set(reflect.ValueOf(value))
			}
			return
		}
		unmark(v.Elem())
	}
}

// unmarked returns what a string stands for, if it is marked.
func unmarked(s string) (any, bool) {
	if number, ok := strings.CutPrefix(s, markNumber); ok {
		return json.Number(number), true
	}
	return strings.CutPrefix(s, markString)
}
