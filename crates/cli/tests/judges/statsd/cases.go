package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
)

// A testCase is a datagram from a test of statsd_exporter.
type testCase struct {
	test, name string
	// The datagram, with a separate prefix for each name that begins with a letter.
	packet string
	// This prefix is needed because nearly all tests use the name foo, but with different types.
	prefix string
}

// The files of the module with tests of datagrams, and the prefix of the names of these tests.
var sources = []struct{ file, tests string }{
	{"bridge_test.go", "TestHandlePacket"},
	{"pkg/line/line_test.go", "Test"},
}

// readCases collects every field named `in` of the tables in the tests.
func readCases(module string) ([]testCase, error) {
	var cases []testCase
	for _, source := range sources {
		path := filepath.Join(module, source.file)
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return nil, err
		}
		for _, declaration := range parsed.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok || !strings.HasPrefix(function.Name.Name, source.tests) {
				continue
			}
			names := caseNames(function)
			ast.Inspect(function, func(node ast.Node) bool {
				literal, ok := node.(*ast.CompositeLit)
				if !ok {
					return true
				}
				input, ok := field(literal, "in")
				if !ok {
					return true
				}
				prefix := fmt.Sprintf("case%d_", len(cases))
				name := names[literal]
				if own, ok := field(literal, "name"); ok {
					name = own
				}
				cases = append(cases, testCase{
					test:   function.Name.Name,
					name:   name,
					packet: withPrefix(input, prefix),
					prefix: prefix,
				})
				return true
			})
		}
	}
	return cases, nil
}

// caseNames returns the keys of tables that are maps.
func caseNames(function *ast.FuncDecl) map[*ast.CompositeLit]string {
	names := make(map[*ast.CompositeLit]string)
	ast.Inspect(function, func(node ast.Node) bool {
		if pair, ok := node.(*ast.KeyValueExpr); ok {
			if value, ok := pair.Value.(*ast.CompositeLit); ok {
				if name, ok := text(pair.Key); ok {
					names[value] = name
				}
			}
		}
		return true
	})
	return names
}

func field(literal *ast.CompositeLit, name string) (string, bool) {
	for _, element := range literal.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if key, ok := pair.Key.(*ast.Ident); ok && key.Name == name {
			return text(pair.Value)
		}
	}
	return "", false
}

// text returns the value of a string literal, or of a sum of string literals.
func text(expression ast.Expr) (string, bool) {
	switch expression := expression.(type) {
	case *ast.BasicLit:
		if expression.Kind != token.STRING {
			return "", false
		}
		value, err := strconv.Unquote(expression.Value)
		return value, err == nil
	case *ast.BinaryExpr:
		left, ok := text(expression.X)
		right, also := text(expression.Y)
		return left + right, ok && also
	}
	return "", false
}

// withPrefix does not change a line whose first character can be the subject of the test.
func withPrefix(packet, prefix string) string {
	lines := strings.Split(packet, "\n")
	for i, line := range lines {
		if line != "" && (line[0]|0x20 >= 'a' && line[0]|0x20 <= 'z') {
			lines[i] = prefix + line
		}
	}
	return strings.Join(lines, "\n")
}
