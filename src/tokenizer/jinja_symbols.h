#pragma once

#include "tokenizer/jinja_ast.h"

namespace nibble::jinja {

// jinja2 decides when it compiles, frame by frame, which names a frame has (its idtracking.py).
// Most of it comes out of looking names up in the frames around, but for one thing: a name that a
// frame assigns before it reads it, and that no frame around knows, is undefined until it is
// assigned, even where the context has it. This fills Stmt::hidden and Program::hidden with such
// names.
void FindHiddenNames(Program& program);

}  // namespace nibble::jinja
