#pragma once

#include "tokenizer/jinja_interpreter.h"

namespace nibble::jinja {

// Counts nested evaluations, so that no template can exhaust the stack.
class Interpreter::Depth {
 public:
  explicit Depth(Interpreter& in) : in_(in) {
    if (++in.depth_ > in.limits_.max_depth) Raise("maximum recursion depth exceeded");
  }
  ~Depth() { --in_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Interpreter& in_;
};

// Sends output to a buffer of its own and variables to a scope of its own, until it ends.
class Interpreter::Redirect {
 public:
  Redirect(Interpreter& in, std::string* out, std::shared_ptr<Scope> scope)
      : in_(in), out_(in.out_), scope_(in.scope_) {
    in.out_ = out;
    in.scope_ = std::move(scope);
  }
  ~Redirect() {
    in_.out_ = out_;
    in_.scope_ = std::move(scope_);
  }
  Redirect(const Redirect&) = delete;
  Redirect& operator=(const Redirect&) = delete;

 private:
  Interpreter& in_;
  std::string* out_;
  std::shared_ptr<Scope> scope_;
};

}  // namespace nibble::jinja
