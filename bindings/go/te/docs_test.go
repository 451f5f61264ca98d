// SPDX-License-Identifier: Apache-2.0

package te

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// checkDoc wants a comment that begins with the name, after an article at most.
func checkDoc(t *testing.T, place, name, text string) {
	t.Helper()
	form := regexp.MustCompile(`^((An?|The) )?` + regexp.QuoteMeta(name) + `\b`)
	if !form.MatchString(text) {
		t.Errorf("%s: %q is no comment on %s", place, strings.TrimSpace(text), name)
	}
}

func exportedNames(v *doc.Value) (names []string) {
	for _, name := range v.Names {
		if ast.IsExported(name) {
			names = append(names, name)
		}
	}
	return names
}

// checkValues wants a comment on each group of constants or variables.
func checkValues(t *testing.T, place string, values []*doc.Value) {
	t.Helper()
	for _, v := range values {
		if names := exportedNames(v); len(names) > 0 && v.Doc == "" {
			t.Errorf("%s: %v have no comment", place, names)
		}
	}
}

func checkFuncs(t *testing.T, place string, funcs []*doc.Func) {
	t.Helper()
	for _, f := range funcs {
		checkDoc(t, place, f.Name, f.Doc)
	}
}

// TestDocs: everything that `go doc` shows has a comment, in the form that it expects.
func TestDocs(t *testing.T) {
	shipped := func(f fs.FileInfo) bool { return !strings.HasSuffix(f.Name(), "_test.go") }
	for _, folder := range []string{".", "../p2pstore"} {
		packages, err := parser.ParseDir(token.NewFileSet(), folder, shipped, parser.ParseComments)
		if err != nil || len(packages) != 1 {
			t.Fatal(folder, len(packages), err)
		}
		for name, parsed := range packages {
			p := doc.New(parsed, "transferengine/"+name, 0)
			checkDoc(t, folder, "Package "+name, p.Doc)
			checkValues(t, folder, append(p.Consts, p.Vars...))
			checkFuncs(t, folder, p.Funcs)
			for _, kind := range p.Types {
				checkDoc(t, folder, kind.Name, kind.Doc)
				checkValues(t, kind.Name, append(kind.Consts, kind.Vars...))
				checkFuncs(t, kind.Name, append(kind.Funcs, kind.Methods...))
			}
		}
	}
}
