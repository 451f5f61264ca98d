/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the programs of test_cpp.py share. Each is a target or an initiator, by its first argument, and
 * has its other arguments as key=value. The target registers memory, whose first half it fills and whose
 * second half is written to, prints "ready NAME ADDRESS", and obeys stdin: "check" compares the second
 * half, the end of input ends it. The initiator reads the first half and writes the second, in pieces of
 * odd lengths and places.
 */
#ifndef TEST_CPP_TWO_H
#define TEST_CPP_TWO_H

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "te.h"

#define CHECK(condition)                               \
    do {                                               \
        if (!(condition))                              \
            two::fail(__FILE__, __LINE__, #condition); \
    } while (0)

namespace two
{

constexpr size_t half = (size_t{4} << 20) + 13;
constexpr size_t in_batch = 16;

[[noreturn]] inline void fail(const char *file, int line, const char *what)
{
    std::fprintf(stderr, "%s:%d: not true: %s (%s)\n", file, line, what, te_errmsg());
    std::exit(1);
}

/* The arguments of the program. */
class Job
{
  public:
    Job(int argc, char **argv) : role(argc > 1 ? argv[1] : "")
    {
        for (int i = 2; i < argc; i++) {
            std::string word = argv[i];
            size_t equals = word.find('=');
            CHECK(equals != std::string::npos);
            values_[word.substr(0, equals)] = word.substr(equals + 1);
        }
    }

    /* "" of what was not given. */
    const std::string &operator[](const std::string &key) const
    {
        return values_[key];
    }

    uint64_t number(const std::string &key) const
    {
        return std::strtoull(values_[key].c_str(), nullptr, 10);
    }

    const std::string role;

  private:
    mutable std::map<std::string, std::string> values_;
};

inline std::vector<unsigned char> bytes(uint64_t seed, size_t n)
{
    std::mt19937_64 random(seed);
    std::vector<unsigned char> out(n);

    for (size_t at = 0; at < n; at += sizeof(uint64_t)) {
        uint64_t word = random();
        std::memcpy(&out[at], &word, std::min(sizeof(word), n - at));
    }
    return out;
}

struct Piece {
    size_t offset, length;
};

/* Cuts [0, n) into pieces, in random order. */
inline std::vector<Piece> cut(uint64_t seed, size_t n)
{
    static const size_t lengths[] = {1, 7, 4095, 4096, 65537, 300000, 1048577};
    std::mt19937_64 random(seed);
    std::vector<Piece> out;

    for (size_t at = 0; at < n;) {
        size_t length = std::min(lengths[random() % 7] + random() % 3, n - at);
        out.push_back({at, length});
        at += length;
    }
    std::shuffle(out.begin(), out.end(), random);
    return out;
}

/*
 * Moves [0, n) between `local` and `remote` of `segment`, by the calls of a TransferEngine or a
 * Transport, taken for what the specification says they are: ints.
 */
template <class Calls>
void move(Calls &calls, typename Calls::TransferRequest::OpCode opcode, unsigned char *local,
          typename Calls::SegmentID segment, uint64_t remote, size_t n, uint64_t seed)
{
    std::vector<Piece> pieces = cut(seed, n);

    for (size_t first = 0; first < pieces.size(); first += in_batch) {
        std::vector<typename Calls::TransferRequest> entries;
        typename Calls::BatchID batch = calls.allocateBatchID(in_batch);

        CHECK(batch != Calls::INVALID_BATCH_ID && static_cast<int64_t>(batch) >= 0);
        for (size_t i = first; i < std::min(first + in_batch, pieces.size()); i++) {
            typename Calls::TransferRequest request;
            request.opcode = opcode;
            request.source = local + pieces[i].offset;
            request.target_id = segment;
            request.target_offset = remote + pieces[i].offset;
            request.length = pieces[i].length;
            entries.push_back(request);
        }
        int rc = calls.submitTransfer(batch, entries);
        CHECK(rc == 0);
        for (size_t i = 0; i < entries.size(); i++) {
            typename Calls::TransferStatus status = {};
            do {
                rc = calls.getTransferStatus(batch, i, status);
                CHECK(rc == 0);
            } while (status.s == Calls::WAITING);
            CHECK(status.s == Calls::COMPLETED);
            CHECK(status.transferred == entries[i].length);
        }
        rc = calls.freeBatchID(batch);
        CHECK(rc == 0);
    }
}

/* Reads the target's first half and writes its second, from memory that is registered. */
template <class Calls>
void exchange(Calls &calls, unsigned char *memory, typename Calls::SegmentID segment,
              uint64_t remote, uint64_t seed)
{
    std::vector<unsigned char> written = bytes(seed + 1, half);

    move(calls, Calls::TransferRequest::READ, memory, segment, remote, half, seed);
    CHECK(std::memcmp(memory, bytes(seed, half).data(), half) == 0);
    std::memcpy(memory + half, written.data(), half);
    move(calls, Calls::TransferRequest::WRITE, memory + half, segment, remote + half, half,
         seed + 1);
    std::memset(memory, 0, half);
    move(calls, Calls::TransferRequest::READ, memory, segment, remote + half, half, seed + 2);
    CHECK(std::memcmp(memory, written.data(), half) == 0);
}

/* The life of a target with its memory registered: until the end of input. */
inline void serve(const std::string &name, std::vector<unsigned char> &memory, uint64_t seed)
{
    std::vector<unsigned char> expected = bytes(seed + 1, half);
    std::string line;

    std::cout << "ready " << name << " " << reinterpret_cast<uintptr_t>(memory.data()) << std::endl;
    while (std::getline(std::cin, line)) {
        bool same = std::memcmp(memory.data() + half, expected.data(), half) == 0;
        std::cout << (line == "check" && same ? "ok" : "wrong") << std::endl;
    }
}

/* Memory of a target, filled; of an initiator, empty. */
inline std::vector<unsigned char> memory_of(const Job &job)
{
    std::vector<unsigned char> memory = bytes(job.number("seed"), half);

    if (job.role != "target")
        std::fill(memory.begin(), memory.end(), static_cast<unsigned char>(0));
    memory.resize(2 * half);
    return memory;
}

} /* namespace two */

#endif
