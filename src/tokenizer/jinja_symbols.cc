#include "tokenizer/jinja_symbols.h"

#include <map>
#include <set>

namespace nibble::jinja {
namespace {

// Names copied for the branches of `if`s; beyond it the template is refused.
constexpr int64_t kMaxWork = 5'000'000;

enum class Load { kParameter, kResolve, kAlias, kUndefined };

// jinja2's Symbols.
struct Symbols {
  const Symbols* parent = nullptr;
  std::map<std::string, Load> refs;
  std::set<std::string> stores;

  bool Knows(const std::string& name) const {
    return refs.contains(name) || (parent && parent->Knows(name));
  }
  bool KnownAround(const std::string& name) const { return parent && parent->Knows(name); }
  void Declare(const std::string& name) {
    stores.insert(name);
    refs[name] = Load::kParameter;
  }
  void Store(const std::string& name) {
    stores.insert(name);
    if (!refs.contains(name)) refs[name] = KnownAround(name) ? Load::kAlias : Load::kUndefined;
  }
  void Read(const std::string& name) {
    if (!Knows(name)) refs[name] = Load::kResolve;
  }
};

class Analysis {
 public:
  void Run(Program& program) {
    Symbols root;
    Visit(program.body, root);
    program.hidden = Hidden(root);
    Enter(program.body, root);
  }

 private:
  // ---- one frame: what its statements read and assign, in their order

  void Read(const Expr* expr, Symbols& symbols) {
    if (!expr) return;
    if (expr->kind == ExprKind::kName) symbols.Read(expr->name);
    for (const Expr* part : expr->parts) Read(part, symbols);
    for (const auto& [name, value] : expr->keywords) Read(value, symbols);
    Read(expr->star_args, symbols);
    Read(expr->star_kwargs, symbols);
  }

  void Store(const Target& target, Symbols& symbols) {
    for (const Target& part : target.parts) Store(part, symbols);
    if (target.is_tuple) return;
    if (target.attribute.empty()) {
      symbols.Store(target.name);
    } else {
      symbols.Read(target.name);
    }
  }

  void Declare(const Target& target, Symbols& symbols) {
    for (const Target& part : target.parts) Declare(part, symbols);
    if (!target.is_tuple) symbols.Declare(target.name);
  }

  void Visit(const Body& body, Symbols& symbols) {
    for (const Stmt* stmt : body) Visit(*stmt, symbols);
  }

  void Visit(const Stmt& stmt, Symbols& symbols) {
    switch (stmt.kind) {
      case StmtKind::kIf:
        return VisitIf(stmt, 0, symbols);
      case StmtKind::kFor:
        return Read(stmt.exprs[0], symbols);
      case StmtKind::kSetBlock:
        return Store(stmt.targets[0], symbols);
      case StmtKind::kMacro:
        return symbols.Store(stmt.name);
      case StmtKind::kAutoescape:
      case StmtKind::kBlock:
        return;
      default:
        break;
    }
    for (const Expr* expr : stmt.exprs) Read(expr, symbols);
    if (stmt.kind == StmtKind::kSet) Store(stmt.targets[0], symbols);
  }

  Symbols Copy(const Symbols& symbols) {
    work_ += int64_t(symbols.refs.size() + symbols.stores.size());
    if (work_ > kMaxWork) Raise("the template has too many names and branches");
    return symbols;
  }

  // The test at `at`, its body, and what follows it: all further tests are one branch, the last
  // body without a test another.
  void VisitIf(const Stmt& stmt, size_t at, Symbols& symbols) {
    Read(stmt.exprs[at], symbols);
    Symbols branches[3] = {Copy(symbols), Copy(symbols), Copy(symbols)};
    Visit(stmt.bodies[at], branches[0]);
    if (at == 0) {
      for (size_t i = 1; i < stmt.exprs.size(); ++i) VisitIf(stmt, i, branches[1]);
      if (stmt.bodies.size() > stmt.exprs.size()) Visit(stmt.bodies.back(), branches[2]);
    }
    Merge(branches, symbols);
  }

  static void Merge(const Symbols (&branches)[3], Symbols& symbols) {
    std::set<std::string> assigned;
    for (const Symbols& branch : branches) {
      for (const std::string& name : branch.stores) {
        if (!symbols.stores.contains(name)) assigned.insert(name);
      }
    }
    for (const Symbols& branch : branches) {
      for (const auto& [name, load] : branch.refs) symbols.refs[name] = load;
    }
    for (const std::string& name : assigned) {
      symbols.stores.insert(name);
      symbols.refs[name] = symbols.KnownAround(name) ? Load::kAlias : Load::kResolve;
    }
  }

  static std::vector<std::string> Hidden(const Symbols& symbols) {
    std::vector<std::string> out;
    for (const auto& [name, load] : symbols.refs) {
      if (load == Load::kUndefined) out.push_back(name);
    }
    return out;
  }

  // ---- the frames inside

  void Enter(const Body& body, const Symbols& around) {
    for (Stmt* stmt : body) Enter(*stmt, around);
  }

  void Enter(Stmt& stmt, const Symbols& around) {
    if (stmt.kind == StmtKind::kIf) {
      for (const Body& body : stmt.bodies) Enter(body, around);
      return;
    }
    for (size_t i = 0; i < stmt.bodies.size(); ++i) {
      Symbols inner;
      // A block's frame stands alone, unless it is scoped.
      if (stmt.kind != StmtKind::kBlock || stmt.recursive) inner.parent = &around;
      const bool is_else = stmt.kind == StmtKind::kFor && i == 1;
      if (!is_else) DeclareParameters(stmt, inner);
      if (stmt.kind == StmtKind::kAutoescape) Read(stmt.exprs[0], inner);
      Visit(stmt.bodies[i], inner);
      if (stmt.kind == StmtKind::kFilterBlock) Read(stmt.exprs[0], inner);
      stmt.hidden.push_back(Hidden(inner));
      Enter(stmt.bodies[i], inner);
    }
  }

  void DeclareParameters(const Stmt& stmt, Symbols& inner) {
    if (stmt.kind == StmtKind::kFor) inner.Declare("loop");
    if (stmt.kind == StmtKind::kFor || stmt.kind == StmtKind::kWith) {
      for (const Target& target : stmt.targets) Declare(target, inner);
    }
    for (const std::string& name : stmt.signature.names) inner.Declare(name);
    if (stmt.signature.uses_caller) inner.Declare("caller");
    if (stmt.signature.uses_varargs) inner.Declare("varargs");
    if (stmt.signature.uses_kwargs) inner.Declare("kwargs");
    for (const Expr* value : stmt.signature.defaults) Read(value, inner);
  }

  int64_t work_ = 0;
};

}  // namespace

void FindHiddenNames(Program& program) { Analysis().Run(program); }

}  // namespace nibble::jinja
