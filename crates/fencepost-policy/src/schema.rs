//! The keys of the file for editors, as a JSON Schema (draft 7).
//!
//! It is a file by hand, since the configuration is read key by key for the sake of its messages, and has no types that a
//! schema could be derived from. The tests hold the two together, both ways.

/// The JSON Schema of `fencepost.toml`.
pub const SCHEMA: &str = include_str!("../fencepost.schema.json");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{OVERLAPS, PLACE_KEYS, REACHES, ROOT_KEYS, RULE_KEYS, TIMING_KEYS};
    use serde_json::Value;

    fn schema() -> Value {
        serde_json::from_str(SCHEMA).unwrap()
    }

    fn keys(table: &str) -> Vec<String> {
        let schema = schema();
        let properties = schema.pointer(&format!("{table}/properties")).unwrap().as_object().unwrap();
        let mut keys: Vec<String> = properties.keys().cloned().collect();
        keys.sort();
        keys
    }

    fn sorted(keys: &[&str]) -> Vec<String> {
        let mut keys: Vec<String> = keys.iter().map(|key| (*key).to_owned()).collect();
        keys.sort();
        keys
    }

    #[test]
    fn schema_has_the_keys_that_are_read_and_no_others() {
        assert_eq!(keys(""), sorted(ROOT_KEYS));
        assert_eq!(keys("/properties/backends/additionalProperties"), sorted(PLACE_KEYS));
        assert_eq!(keys("/properties/fences/additionalProperties"), sorted(PLACE_KEYS));
        assert_eq!(keys("/properties/defaults"), sorted(TIMING_KEYS));
        assert_eq!(keys("/definitions/rule"), sorted(RULE_KEYS));
    }

    #[test]
    fn schema_has_the_words_that_are_read() {
        let words = |key: &str| schema()["definitions"]["rule"]["properties"][key]["enum"].clone();
        let overlaps: Vec<&str> = OVERLAPS.iter().map(|(word, _)| *word).collect();
        let reaches: Vec<&str> = REACHES.iter().map(|(word, _)| *word).collect();
        assert_eq!(words("on_overlap"), Value::from(overlaps));
        assert_eq!(words("hosts"), Value::from(reaches.clone()));
        assert_eq!(words("databases"), Value::from(reaches));
        assert_eq!(words("require"), Value::from(vec!["durable"]));
    }

    #[test]
    fn every_key_is_described() {
        fn undescribed(value: &Value, path: &str, found: &mut Vec<String>) {
            let Some(object) = value.as_object() else { return };
            for (key, inner) in object {
                let path = format!("{path}/{key}");
                if key == "properties" {
                    let keys = inner.as_object().unwrap().iter();
                    let without = keys.filter(|(_, inner)| inner["description"].as_str().is_none());
                    found.extend(without.map(|(key, _)| format!("{path}/{key}")));
                }
                undescribed(inner, &path, found);
            }
        }
        let mut found = Vec::new();
        undescribed(&schema(), "", &mut found);
        assert_eq!(found, Vec::<String>::new());
    }
}
