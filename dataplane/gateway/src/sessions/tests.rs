//! Cores on one thread, with the real lanes between them, that come to their mailboxes in the order of a lot.

use llmgw_kit::chance::Chance;
use llmgw_router::metrics::{SESSION_OUTCOMES, SESSION_SUBJECTS};
use llmgw_runtime::mailbox::{LANE_CAPACITY, Mailbox, Mesh};
use llmgw_runtime::run_local;

use super::*;

const CORES: usize = 4;
const SLOTS: u32 = 8;

struct Core {
    sessions: Rc<Sessions>,
    cells: Arc<CoreCells>,
    mailbox: Mailbox<CoreMessage>,
    heard: Heard,
}

impl Core {
    /// What a core does when it comes to its mailbox.
    fn turn(&mut self) {
        let mut messages = Vec::new();
        self.mailbox.look(&mut messages);
        for message in messages {
            match message {
                CoreMessage::Locate(subject, ticket) => self.heard.push(subject, ticket),
                CoreMessage::Located(ticket, holder) => self.sessions.answered(ticket, holder),
                CoreMessage::Placed(subject, holder) => self.sessions.place(subject, holder),
                other => panic!("nobody says {other:?}"),
            }
        }
        self.heard.ripe().for_each(|(subject, ticket)| self.sessions.answer(subject, ticket));
    }

    fn counted(&self, about: &str, outcome: &str) -> u64 {
        let place = |words: &[&str], word| words.iter().position(|known| *known == word).unwrap();
        self.cells.session_messages[place(SESSION_SUBJECTS, about)][place(SESSION_OUTCOMES, outcome)].value()
    }
}

/// To be called on a driver. Where that never gets to run, no time passes and nobody is woken.
fn cores(lane: usize) -> Vec<Core> {
    let mesh = Mesh::new(CORES, 0, lane).unwrap();
    let board = Arc::new(Board::new(CORES, SLOTS as usize));
    let core = |number: u32| {
        let cells: Arc<CoreCells> = Arc::default();
        let lanes = Rc::new(Lanes::new(CoreId(number), CORES as u32));
        lanes.open(mesh.post(number as usize));
        let sessions = Rc::new(Sessions::new(lanes, board.clone(), cells.clone()));
        Core { sessions, cells, mailbox: mesh.inbox(CoreId(number)).open().unwrap(), heard: Heard::default() }
    };
    (0..CORES as u32).map(core).collect()
}

/// A subject owned by that core.
fn owned_by(core: u32, kind: fn(u64) -> Subject, nth: u64) -> Subject {
    let hashes = (nth * 1000..).map(|at| llmgw_router::session::key_hash(&at.to_le_bytes()));
    let owner = |hash: &u64| llmgw_runtime::owner::owner_of(*hash, CORES as u32) == CoreId(core);
    kind(hashes.into_iter().find(owner).unwrap())
}

/// A question on its way, and the slot it comes back with.
type Asking = Pin<Box<dyn Future<Output = Option<u32>>>>;

fn ask(sessions: &Rc<Sessions>, subject: Subject) -> Asking {
    let sessions = sessions.clone();
    Box::pin(async move { sessions.locate(subject).await.map(|holder| holder.slot.0) })
}

fn poll(asking: &mut Asking) -> Poll<Option<u32>> {
    asking.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

/// What one client does, one thing after another, on whichever core takes it.
struct Client {
    subject: Subject,
    /// Where it was put last.
    slot: Option<u32>,
    /// Whether the owner came to its mailbox since.
    is_heard: bool,
    /// With whether what is on its way may be missed.
    asking: Option<(bool, Asking)>,
}

#[test]
fn whatever_is_asked_over_any_core_in_any_order_is_where_it_was_put_last() {
    for seed in 0..20 {
        run_local(async move { shuffle(seed) });
    }
}

fn shuffle(seed: u64) {
    let (mut chance, mut cores, mut found) = (Chance::seeded(seed), cores(LANE_CAPACITY), 0);
    let mut clients: Vec<Client> = (0..40u32)
        .map(|at| {
            let kind = if at % 2 == 0 { Subject::Response } else { Subject::Session };
            let subject = owned_by(at / 2 % CORES as u32, kind, at.into());
            Client { subject, slot: None, is_heard: true, asking: None }
        })
        .collect();
    for _ in 0..4000 {
        let (client, here) = (chance.below(40) as usize, chance.below(CORES as u32) as usize);
        let client = &mut clients[client];
        let sessions = cores[here].sessions.clone();
        let owner = sessions.lanes.owner_of(client.subject.hash());
        match chance.below(3) {
            0 if client.asking.is_none() => {
                // On the owner itself, and where the board does not show a session yet, nobody is asked.
                let may_be_away = match client.subject {
                    Subject::Session(hash) => sessions.board.may_know_session(owner, hash),
                    Subject::Response(_) => true,
                };
                let is_asked = owner.idx() != here && may_be_away;
                client.asking = Some((!client.is_heard && !is_asked, ask(&sessions, client.subject)));
            }
            // Notices over different lanes overtake each other: the next one waits for the one before.
            1 if client.asking.is_none() && client.is_heard => {
                client.slot = (chance.below(5) > 0).then(|| chance.below(SLOTS));
                sessions.tell(client.subject, client.slot.map(BoardSlot));
                client.is_heard = owner.idx() == here;
            }
            _ => {
                cores[here].turn();
                let heard =
                    clients.iter_mut().filter(|client| sessions.lanes.owner_of(client.subject.hash()).idx() == here);
                heard.for_each(|client| client.is_heard = true);
            }
        }
        for client in &mut clients {
            let Some((may_miss, asking)) = &mut client.asking else { continue };
            let Poll::Ready(answer) = poll(asking) else { continue };
            assert!(answer == client.slot || *may_miss, "seed {seed}: {answer:?}, put at {:?}", client.slot);
            found += u32::from(answer.is_some());
            client.asking = None;
        }
    }
    assert!(found > 100, "{found}: nothing was shown");
    assert_eq!(cores.iter().map(|core| core.counted("response", "unanswered")).sum::<u64>(), 0);
}

#[test]
fn nobody_is_asked_for_what_is_ones_own_nor_for_a_session_that_never_left() {
    run_local(async {
        let mut cores = cores(LANE_CAPACITY);
        let (near, far) = (owned_by(0, Subject::Response, 1), owned_by(1, Subject::Session, 2));
        cores[0].sessions.tell(near, Some(BoardSlot(3)));
        assert_eq!(poll(&mut ask(&cores[0].sessions, near)), Poll::Ready(Some(3)));
        assert_eq!(poll(&mut ask(&cores[0].sessions, far)), Poll::Ready(None));
        let none = |core: &Core| core.cells.session_messages.iter().flatten().all(|cell| cell.value() == 0);
        assert!(none(&cores[0]), "no message");

        cores[2].sessions.tell(far, Some(BoardSlot(5)));
        cores[1].turn();
        let mut asking = ask(&cores[0].sessions, far);
        assert_eq!(poll(&mut asking), Poll::Pending);
        (0..2).for_each(|_| cores[1].turn());
        cores[0].turn();
        assert_eq!(poll(&mut asking), Poll::Ready(Some(5)));
        assert_eq!((cores[0].counted("session", "found"), cores[2].counted("session", "told")), (1, 1));
        cores[2].sessions.tell(far, None);
        cores[1].turn();
        assert_eq!(poll(&mut ask(&cores[0].sessions, far)), Poll::Ready(None));
        assert_eq!(cores[0].counted("session", "unknown"), 0, "it is home again, and nobody asks");
    });
}

#[test]
fn a_full_lane_and_too_many_questions_cost_nothing_but_the_answer() {
    run_local(async {
        let mut cores = cores(2);
        let far = owned_by(1, Subject::Response, 1);
        let open: Vec<Asking> = (0..2)
            .map(|_| {
                let mut asking = ask(&cores[0].sessions, far);
                assert_eq!(poll(&mut asking), Poll::Pending);
                asking
            })
            .collect();
        assert_eq!(poll(&mut ask(&cores[0].sessions, far)), Poll::Ready(None));
        cores[0].sessions.tell(far, Some(BoardSlot(1)));
        assert_eq!((cores[0].counted("response", "not_asked"), cores[0].counted("response", "not_told")), (1, 1));

        // Whoever asked has left: the answers find nobody.
        drop(open);
        assert!(cores[0].sessions.open.borrow().is_empty());
        (0..2).for_each(|_| cores[1].turn());
        cores[0].turn();
        assert!(cores[0].sessions.open.borrow().is_empty());

        let mut wide = self::cores(2 * OPEN_MAX);
        let mut open: Vec<Asking> = (0..OPEN_MAX).map(|_| ask(&wide[0].sessions, far)).collect();
        assert!(open.iter_mut().all(|asking| poll(asking).is_pending()));
        assert_eq!(poll(&mut ask(&wide[0].sessions, far)), Poll::Ready(None));
        assert_eq!(wide[0].counted("response", "not_asked"), 1);
        wide[1].turn();
    });
}

#[test]
fn an_owner_that_does_not_answer_is_not_waited_for_longer_than_its_time() {
    run_local(async {
        let cores = cores(LANE_CAPACITY);
        let far = owned_by(1, Subject::Response, 1);
        assert_eq!(cores[0].sessions.locate(far).await, None);
        assert_eq!(cores[0].counted("response", "unanswered"), 1);
        assert!(cores[0].sessions.open.borrow().is_empty());
    });
}
