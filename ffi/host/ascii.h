// Letters and white space of ASCII. Those of <cctype> depend on the locale that Python sets: in a Turkish one the
// upper-case letter of `i` is not `I`.
#ifndef JAXDALI_FFI_HOST_ASCII_H_
#define JAXDALI_FFI_HOST_ASCII_H_

namespace jaxdali::ascii {

inline bool IsUpper(char c) { return c >= 'A' && c <= 'Z'; }
inline bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
inline bool IsSpace(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
inline char ToUpper(char c) { return IsLower(c) ? static_cast<char>(c - 'a' + 'A') : c; }
inline char ToLower(char c) { return IsUpper(c) ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace jaxdali::ascii

#endif  // JAXDALI_FFI_HOST_ASCII_H_
