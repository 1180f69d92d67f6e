// Package godoc checks that everything that another package can use is documented.
// It is in the root module, whose files Go looks at before it takes a test's older
// result for good.
package godoc

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// packages are all of the repository that is not a command, a test, or both.
var packages = []string{"nexus", "handler", "caller", "endpoints", "internal/rude", "internal/recorded", "examples/devserver", "tests/npm"}

func TestEveryPackageAndEveryExportedNameHasADocComment(t *testing.T) {
	for _, name := range packages {
		t.Run(name, func(t *testing.T) {
			files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(name), "*.go"))
			require.NoError(t, err)
			require.NotEmpty(t, files)
			set := token.NewFileSet()
			packageDoc := false
			for _, path := range files {
				if strings.HasSuffix(path, "_test.go") {
					continue
				}
				file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
				require.NoError(t, err)
				packageDoc = packageDoc || file.Doc.Text() != ""
				for _, node := range undocumented(file) {
					t.Errorf("%s: %s has no doc comment", set.Position(node.Pos()), node.Name)
				}
			}
			assert.True(t, packageDoc, "the package has no doc comment")
		})
	}
}

// undocumented returns the exported names of a file that nothing is said about.
func undocumented(file *ast.File) (names []*ast.Ident) {
	check := func(name *ast.Ident, docs ...*ast.CommentGroup) {
		for _, doc := range docs {
			if doc.Text() != "" {
				return
			}
		}
		if name.IsExported() {
			names = append(names, name)
		}
	}
	for _, declaration := range file.Decls {
		switch declaration := declaration.(type) {
		case *ast.FuncDecl:
			if declaration.Recv == nil || ast.IsExported(receiver(declaration.Recv.List[0].Type)) {
				check(declaration.Name, declaration.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range declaration.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					check(spec.Name, spec.Doc, declaration.Doc)
					if fields, ok := spec.Type.(*ast.StructType); ok && spec.Name.IsExported() {
						said := (*ast.CommentGroup)(nil)
						for _, field := range fields.Fields.List {
							if field.Doc != nil {
								said = field.Doc
							}
							for _, name := range field.Names {
								// A comment may be about fields below it too, by name.
								if !strings.Contains(said.Text(), name.Name) {
									check(name, field.Doc, field.Comment)
								}
							}
						}
					}
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						check(name, spec.Doc, spec.Comment, declaration.Doc) // a group may share one
					}
				}
			}
		}
	}
	return names
}

// receiver is the name of a method's type.
func receiver(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
