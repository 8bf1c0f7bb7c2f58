//! The configurations that follow each other: who is there, and with which weight.

/// Engines that stay in every text: an endpoint that has just been added is asked only once it says that it is ready.
const STAYING: usize = 2;

/// Every text of a run.
pub(super) struct Texts<'a> {
    engine_urls: &'a [String],
    model: &'a str,
}

impl<'a> Texts<'a> {
    pub(super) fn new(engine_urls: &'a [String], model: &'a str) -> Self {
        Self { engine_urls, model }
    }

    /// The file's text and the endpoints it names, in its order. No two rounds in a row have the same endpoints, and
    /// the weights are another round's in every round.
    pub(super) fn of_round(&self, round: usize) -> (String, Vec<String>) {
        let is_there = |idx: usize| match round % 3 {
            _ if idx < STAYING => true,
            0 => idx.is_multiple_of(2),
            1 => true,
            _ => !idx.is_multiple_of(2),
        };
        let mut text = String::from("listen: \"127.0.0.1:0\"\nadmin_listen: \"127.0.0.1:0\"\nendpoints:\n");
        let mut names = Vec::new();
        for (idx, url) in self.engine_urls.iter().enumerate().filter(|(idx, _)| is_there(*idx)) {
            let (name, weight) = (format!("engine-{idx}"), 50 + (round * 37 + idx * 61) % 200);
            let model = self.model;
            text.push_str(&format!(
                "  - {{ name: {name}, url: \"{url}\", model: \"{model}\", engine: sim, weight: {weight} }}\n"
            ));
            names.push(name);
        }
        (text, names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_round_adds_and_removes_endpoints_and_two_stay() {
        let urls: Vec<String> = (0..6).map(|idx| format!("http://127.0.0.1:{idx}")).collect();
        let texts = Texts::new(&urls, "m");
        let mut before = texts.of_round(0);
        for round in 1..7 {
            let found = texts.of_round(round);
            assert_ne!(found.1, before.1, "round {round}");
            assert_ne!(found.0, before.0);
            assert_eq!(found.1[..2], ["engine-0", "engine-1"]);
            assert_eq!(found.0.matches("name: engine-").count(), found.1.len());
            before = found;
        }
    }
}
