#include "cli/eval_flags.h"

namespace nibble::cli {

Status AddArithmetic(const GlobalFlags& flags, Json& out) {
  NIBBLE_TRY(const KvFormats kv, ParseKvFormats(flags));
  out["act"] = flags.act;
  out["kv"] = kv.Name();
  out["kv_skip_layers"] = kv.skip_layers;
  out["kv_rotate"] = kv.Rotates();
  return {};
}

}  // namespace nibble::cli
