// Stands before a JavaScript submission of CommonJS files: each is a function that `require` calls once.
const $files = {}, $made = {};
function $need(path) {
  if (!$made[path]) { $made[path] = { exports: {} }; $files[path]($made[path], $made[path].exports); }
  return $made[path].exports;
}
