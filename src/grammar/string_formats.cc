#include "grammar/string_formats.h"

#include <string>

#include "base/check.h"

namespace nibble::grammar {
namespace {

// Gregorian, 29 February in leap years only.
std::string Date() {
  const std::string leap =
      "([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29";
  return "(" + leap +
         "|[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"
         "02-(0[1-9]|1[0-9]|2[0-8])))";
}

std::string Time() {
  return "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-"
         "9])";
}

std::string Ipv4() {
  const std::string byte = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  return byte + "(\\." + byte + "){3}";
}

std::string Ipv6() {
  const std::string h = "[0-9a-fA-F]{1,4}";
  const std::string tail = "(" + h + ":" + h + "|" + Ipv4() + ")";
  std::string out = "(" + h + ":){6}" + tail;
  // h16s before and behind a "::", at most seven together.
  for (int before = 0; before <= 7; ++before) {
    const std::string left =
        before == 0 ? "" : h + "(:" + h + "){" + std::to_string(before - 1) + "}";
    const int most = 7 - before;
    std::string right;
    if (most >= 1) right = h + "(:" + h + "){0," + std::to_string(most - 1) + "}";
    if (most >= 2) right += "|(" + h + ":){0," + std::to_string(most - 2) + "}" + Ipv4();
    out += "|" + left + "::" + (right.empty() ? "" : "(" + right + ")?");
  }
  return "(" + out + ")";
}

std::string Label(int most) {
  return fmt::format("[a-zA-Z0-9]([a-zA-Z0-9-]{{0,{}}}[a-zA-Z0-9])?", most - 2);
}

// At most 253 characters without counting them, which would multiply the states by their number:
// four labels of 63, 63, 63 and 61, or ten of 24.
std::string Hostname() {
  const std::string any = Label(63);
  const std::string few = Label(24);
  return "(" + any + "(\\." + any + "){0,2}(\\." + Label(61) + ")?|" + few + "(\\." + few +
         "){0,9})";
}

std::string Uri(bool reference) {
  const std::string pct = "%[0-9A-Fa-f]{2}";
  const std::string unreserved = "A-Za-z0-9._~\\-";
  const std::string sub = "!$&'()*+,;=";
  const std::string pchar = "([" + unreserved + sub + ":@]|" + pct + ")";
  const std::string segment = pchar + "*";
  const std::string authority = "([" + unreserved + sub + ":]|" + pct + ")*";
  const std::string user = "(([" + unreserved + sub + ":]|" + pct + ")*@)?";
  const std::string host = "(([" + unreserved + sub + "]|" + pct + ")*|\\[" + Ipv6() + "\\])";
  const std::string from_authority = "//" + user + host + "(:[0-9]{0,5})?(/" + segment + ")*";
  const std::string behind = "(\\?(" + pchar + "|[/?])*)?(#(" + pchar + "|[/?])*)?";
  const std::string absolute = "/(" + pchar + "+(/" + segment + ")*)?";
  const std::string rootless = pchar + "+(/" + segment + ")*";
  const std::string uri = "[A-Za-z][A-Za-z0-9+.-]*:(" + from_authority + "|" + absolute + "|" +
                          rootless + "|)" + behind;
  if (!reference) return uri;
  const std::string no_colon = "([" + unreserved + sub + "@]|" + pct + ")+(/" + segment + ")*";
  return "(" + uri + "|(" + from_authority + "|" + absolute + "|" + no_colon + "|)" + behind + ")";
}

std::string Pattern(std::string_view format) {
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+";
  const std::string pointer = "(/([^/~]|~[01])*)*";
  if (format == "date") return Date();
  if (format == "time") return Time();
  if (format == "date-time") return Date() + "[Tt]" + Time();
  if (format == "duration") {
    return "P([0-9]+W|([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)(T([0-9]+H([0-9]+M([0-"
           "9]"
           "+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S))?|T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-"
           "9]+"
           "S))";
  }
  if (format == "email") return atom + "(\\." + atom + ")*@" + Hostname();
  if (format == "hostname") return Hostname();
  if (format == "ipv4") return Ipv4();
  if (format == "ipv6") return Ipv6();
  if (format == "uuid") return "[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
  if (format == "uri") return Uri(false);
  if (format == "uri-reference") return Uri(true);
  if (format == "json-pointer") return pointer;
  if (format == "relative-json-pointer") return "(0|[1-9][0-9]*)(#|" + pointer + ")";
  return {};
}

}  // namespace

Result<CharDfa> StringsOfFormat(std::string_view format) {
  const std::string pattern = Pattern(format);
  if (pattern.empty()) {
    return BadInput("the format '{}' is not supported", format.substr(0, 40));
  }
  const auto tree = ParseRegex(pattern);
  NIBBLE_CHECK(tree);
  auto dfa = CharDfa::OfRegex(*tree, true);
  if (!dfa || (format != "hostname" && format != "email")) return dfa;
  // Two hyphens at the third place mark international names, which need tables: left out.
  const auto marks = ParseRegex("(^|[.@])[^.@]{2}--");
  NIBBLE_CHECK(marks);
  NIBBLE_TRY(const CharDfa international, CharDfa::OfRegex(*marks, false));
  NIBBLE_TRY(dfa, dfa->Intersect(international.Complement()));
  if (format == "hostname") return dfa;
  const auto short_name = ParseRegex("[^@]{1,64}@[^@]*");  // RFC 5321, 4.5.3.1.1
  NIBBLE_CHECK(short_name);
  NIBBLE_TRY(const CharDfa local, CharDfa::OfRegex(*short_name, true));
  return dfa->Intersect(local);
}

}  // namespace nibble::grammar
