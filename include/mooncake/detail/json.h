/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - reads the JSON text of te.h's functions, and writes it. Not for programs. */
#ifndef MOONCAKE_DETAIL_JSON_H
#define MOONCAKE_DETAIL_JSON_H

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace mooncake
{

namespace detail
{

/* A value. What it does not have is empty, 0 or false, so that a reader need not ask before. */
class Json
{
  public:
    enum Kind { NONE, LITERAL, NUMBER, TEXT, ARRAY, OBJECT };

    /* NONE: the text is not JSON. */
    static Json parse(const std::string &text)
    {
        const char *at = text.c_str();
        Json value;

        if (!read(at, value, 0))
            return Json();
        skip(at);
        return *at ? Json() : value;
    }

    Kind kind() const
    {
        return kind_;
    }

    /*
     * The members of an array or an object, in the order of the text; of the latter keys() as well. Of a
     * temporary value they are the caller's own, not parts of what is about to go.
     */
    const std::vector<Json> &items() const &
    {
        return items_;
    }

    std::vector<Json> items() &&
    {
        return std::move(items_);
    }

    const std::vector<std::string> &keys() const &
    {
        return keys_;
    }

    Json operator[](const char *key) &&
    {
        return static_cast<const Json &>(*this)[key];
    }

    const Json &operator[](const char *key) const &
    {
        static const Json none;

        for (size_t i = 0; i < keys_.size(); i++)
            if (keys_[i] == key)
                return items_[i];
        return none;
    }

    const std::string &text() const &
    {
        static const std::string none;

        return kind_ == TEXT ? text_ : none;
    }

    uint64_t number() const
    {
        return kind_ == NUMBER ? std::strtoull(text_.c_str(), nullptr, 10) : 0;
    }

    double real() const
    {
        return kind_ == NUMBER ? std::strtod(text_.c_str(), nullptr) : 0;
    }

    bool is_true() const
    {
        return kind_ == LITERAL && text_ == "true";
    }

    std::vector<std::string> texts() const
    {
        std::vector<std::string> all;

        for (const Json &item : items_)
            all.push_back(item.text());
        return all;
    }

    /* The numbers of an array, as far as they fit `Number`. */
    template <class Number> std::vector<Number> numbers() const
    {
        std::vector<Number> all;

        for (const Json &item : items_)
            all.push_back(static_cast<Number>(item.number()));
        return all;
    }

    static std::string quoted(const std::string &text)
    {
        static const char digits[] = "0123456789abcdef";
        std::string out = "\"";

        for (char c : text) {
            const unsigned byte = static_cast<unsigned char>(c);
            if (c == '"' || c == '\\')
                (out += '\\') += c;
            else if (byte < 0x20)
                ((out += "\\u00") += digits[byte >> 4]) += digits[byte & 15];
            else
                out += c;
        }
        return out += '"';
    }

    static std::string list(const std::vector<std::string> &texts)
    {
        std::string out = "[";

        for (const std::string &text : texts)
            (out += out.size() > 1 ? "," : "") += quoted(text);
        return out += ']';
    }

    template <class Number> static std::string list(const std::vector<Number> &numbers)
    {
        std::string out = "[";

        for (Number number : numbers)
            (out += out.size() > 1 ? "," : "") += std::to_string(number);
        return out += ']';
    }

  private:
    static constexpr int depth_max = 64;

    static void skip(const char *&at)
    {
        while (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')
            at++;
    }

    static bool take(const char *&at, char wanted)
    {
        skip(at);
        if (*at != wanted)
            return false;
        at++;
        return true;
    }

    static void append_utf8(std::string &out, uint32_t code)
    {
        const auto add = [&out](uint32_t byte) { out += static_cast<char>(byte); };

        if (code < 0x80) {
            add(code);
            return;
        }
        if (code >= 0x10000) {
            add(0xf0 | code >> 18);
            add(0x80 | (code >> 12 & 0x3f));
        } else if (code >= 0x800) {
            add(0xe0 | code >> 12);
        }
        add(code >= 0x800 ? 0x80 | (code >> 6 & 0x3f) : 0xc0 | code >> 6);
        add(0x80 | (code & 0x3f));
    }

    static bool read_hex(const char *&at, uint32_t &code)
    {
        code = 0;
        for (int i = 0; i < 4; i++, at++) {
            const char *digits = "0123456789abcdef0123456789ABCDEF";
            const char *found = *at ? std::strchr(digits, *at) : nullptr;
            if (!found)
                return false;
            code = code << 4 | (static_cast<uint32_t>(found - digits) & 15);
        }
        return true;
    }

    /* What follows "\u", and the second half of a pair. */
    static bool read_code(const char *&at, std::string &out)
    {
        uint32_t code, low;

        if (!read_hex(at, code))
            return false;
        if (code >= 0xd800 && code < 0xdc00 && at[0] == '\\' && at[1] == 'u') {
            at += 2;
            if (!read_hex(at, low))
                return false;
            code = 0x10000 + ((code & 0x3ff) << 10 | (low & 0x3ff));
        }
        append_utf8(out, code);
        return true;
    }

    static bool read_escape(const char *&at, std::string &out)
    {
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        const char *found = *at ? std::strchr(from, *at) : nullptr;

        if (*at == 'u')
            return read_code(++at, out);
        if (!found)
            return false;
        out += to[found - from];
        at++;
        return true;
    }

    static bool read_text(const char *&at, std::string &out)
    {
        if (!take(at, '"'))
            return false;
        while (*at && *at != '"') {
            if (*at != '\\')
                out += *at++;
            else if (!read_escape(++at, out))
                return false;
        }
        return *at++ == '"';
    }

    static bool read_members(const char *&at, Json &value, char end, int depth)
    {
        at++;
        if (take(at, end))
            return true;
        do {
            std::string key;
            if (value.kind_ == OBJECT && (!read_text(at, key) || !take(at, ':')))
                return false;
            if (value.kind_ == OBJECT)
                value.keys_.push_back(std::move(key));
            value.items_.emplace_back();
            if (!read(at, value.items_.back(), depth + 1))
                return false;
        } while (take(at, ','));
        return take(at, end);
    }

    static bool read(const char *&at, Json &value, int depth)
    {
        skip(at);
        if (depth > depth_max)
            return false;
        if (*at == '{' || *at == '[') {
            value.kind_ = *at == '{' ? OBJECT : ARRAY;
            return read_members(at, value, *at == '{' ? '}' : ']', depth);
        }
        if (*at == '"') {
            value.kind_ = TEXT;
            return read_text(at, value.text_);
        }
        const size_t n = std::strcspn(at, " \t\r\n,]}");
        value.kind_ = *at == '-' || (*at >= '0' && *at <= '9') ? NUMBER : LITERAL;
        value.text_.assign(at, n);
        at += n;
        return value.kind_ == NUMBER || value.text_ == "true" || value.text_ == "false" ||
               value.text_ == "null";
    }

    Kind kind_ = NONE;
    std::string text_; /* of a literal and a number as they were written */
    std::vector<std::string> keys_;
    std::vector<Json> items_;
};

} /* namespace detail */

} /* namespace mooncake */

#endif
