// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "sim/base/yaml.hpp"
#include "tests/user_error.hpp"

using namespace orrery;

namespace {

std::string after(std::string_view change, std::string_view yaml = "a: {b: [1, 2]}\nx: y\n") {
  Node root = parse_yaml(yaml, "f");
  set_path(root, change, {"--set", 0, 0, {}});
  return to_flow_yaml(root);
}

std::string set_error(std::string_view change) {
  return user_error([&] { after(change); });
}

}  // namespace

TEST_CASE("a change sets, makes, appends and deletes", "[base][set]") {
  CHECK(after("x=z") == "{a: {b: [1, 2]}, x: z}");
  CHECK(after("a.b[1]=7") == "{a: {b: [1, 7]}, x: y}");
  CHECK(after("a.c.d=80 GiB") == "{a: {b: [1, 2], c: {d: 80 GiB}}, x: y}");
  CHECK(after("a.b+=3") == "{a: {b: [1, 2, 3]}, x: y}");
  CHECK(after("new+=3") == "{a: {b: [1, 2]}, x: y, new: [3]}");
  CHECK(after("~a.b[0]") == "{a: {b: [2]}, x: y}");
  CHECK(after("~a") == "{x: y}");
  CHECK(after("x={p: [1]}") == "{a: {b: [1, 2]}, x: {p: [1]}}");
  CHECK(after("x=") == "{a: {b: [1, 2]}, x: null}");
  CHECK(after("x=a=b") == "{a: {b: [1, 2]}, x: a=b}");
  CHECK(after("a=1", "") == "{a: 1}");
}

TEST_CASE("a value that was set says so when it is wrong", "[base][set]") {
  Node root;
  set_path(root, "a.b=cc", {"--set", 0, 0, {}});
  CHECK(to_text(at(*root.find("a")->find("b"), "wrong")) == "--set: wrong\n  a.b=cc\n      ^");
}

TEST_CASE("a wrong change names its place", "[base][set][error]") {
  CHECK(set_error("a") ==
        "--set: 'a' is not a change\n  a\n  hint: write path=value, path+=value to append, or ~path to delete");
  for (const std::string path :
       {"a..b", ".a", "a.", "", "a[", "a[x]", "a[1]b", "a]", "a[-1]", "a[99999999999999999999]"})
    CHECK(set_error(path + "=1") ==
          "--set: '" + path + "' is not a path\n  " + path + "=1\n  hint: for example a.b or a.list[2].c");
}

TEST_CASE("a change that does not fit the document is refused", "[base][set][error]") {
  CHECK(set_error("a.b[2]=1") ==
        "--set: [2] is past the end of a list of 2\n  a.b[2]=1\n         ^\n"
        "  hint: indices start at 0; append with +=");
  CHECK(set_error("a[0]=1") == "--set: [0] needs a list; what stands there is a map\n  a[0]=1\n       ^");
  CHECK(set_error("new[0]=1") == "--set: [0] needs a list; what stands there is empty\n  new[0]=1\n         ^");
  CHECK(set_error("x.z=1") == "--set: 'z' needs a map; what stands there is a single value\n  x.z=1\n      ^");
  CHECK(set_error("a.b.c=1") == "--set: 'c' needs a map; what stands there is a list\n  a.b.c=1\n        ^");
  CHECK(set_error("x+=1") == "--set: += needs a list; what stands there is a single value\n  x+=1\n     ^");
  CHECK(set_error("~a.c") == "--set: there is no key 'c' to delete\n  ~a.c\n  hint: known keys: b");
}

TEST_CASE("a value that is not YAML is refused", "[base][set][error]") {
  CHECK(set_error("x=*y") == "--set:1:1: the referenced anchor is not defined\n  *y\n  ^");
}
