using System.Globalization;

namespace Quantra.Client.Testing;

/// <summary>A lifecycle for tests. It keeps the champions in memory, decides what the test sets, and fails on demand.</summary>
/// <remarks>Thread-safe.</remarks>
/// <example>
/// <code>
/// var lifecycle = new FakeModelLifecycle { Gates = [new GateResult("audit", false, false, "a passed audit", "none")] };
/// Console.WriteLine(await lifecycle.PromoteAsync("stock@2", "newer")); // not promoted
/// Console.WriteLine(await lifecycle.PromoteAsync("stock@2", "newer", ["audit"])); // promoted
/// Console.WriteLine(lifecycle.Changes[0].Reason);
/// </code>
/// </example>
public sealed class FakeModelLifecycle : IModelLifecycle
{
    private readonly object _gate = new();
    private readonly List<ChampionChange> _changes = [];
    private readonly Dictionary<string, Stack<int>> _champions = [];

    /// <summary>The conditions of every promotion. Those that failed keep a version from becoming the champion, unless they are overridden.</summary>
    /// <value>One passed gate by default.</value>
    public IReadOnlyList<GateResult> Gates { get; set; } = [new("losses", true, false, "a better loss", "a better loss")];

    /// <summary>Decision of every comparison.</summary>
    /// <value>Undecided by default.</value>
    public ComparisonDecision Decision { get; set; } = ComparisonDecision.Undecided;

    /// <summary>Runs before each call. To simulate a slow call, return a task that the test completes.</summary>
    public Func<CancellationToken, Task> BeforeCall { get; set; } = _ => Task.CompletedTask;

    /// <summary>Exception that every call throws; null = none.</summary>
    public Exception? Failure { get; set; }

    /// <summary>All changes of champions so far, in order.</summary>
    public IReadOnlyList<ChampionChange> Changes
    {
        get
        {
            lock (_gate)
                return [.. _changes];
        }
    }

    /// <inheritdoc/>
    public async Task<ModelComparison> CompareAsync(
        ModelReference champion,
        ModelReference challenger,
        DateOnly? firstSession = null,
        CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(champion);
        ArgumentNullException.ThrowIfNull(challenger);
        await BeginAsync(cancellationToken).ConfigureAwait(false);
        var first = firstSession ?? new DateOnly(2024, 6, 3);
        return new()
        {
            Champion = champion.Text,
            Challenger = challenger.Text,
            Decision = Decision,
            Need = "made up",
            Sentence = "made up for a test",
            FirstSession = first,
            LastSession = Weekdays.After(first, 19),
            Days = 20,
            Symbols = ["AAPL"],
            Improvement = 0.01,
            Lower = Decision == ComparisonDecision.For ? 0.005 : -0.005,
            Upper = 0.025,
            ResultJson = "{}",
        };
    }

    /// <inheritdoc/>
    public async Task<PromotionResult> PromoteAsync(
        ModelReference version,
        string reason,
        IReadOnlyList<string>? overrideGates = null,
        CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(version);
        ArgumentNullException.ThrowIfNull(reason);
        await BeginAsync(cancellationToken).ConfigureAwait(false);
        var (model, number) = VersionOf(version);
        lock (_gate)
        {
            if (ChampionOrNull(model) == number)
                return new(true, [], number);
            GateResult[] gates = [.. Gates.Select(gate => gate with { IsOverridden = !gate.IsPassed && overrideGates?.Contains(gate.Name) == true })];
            var isPromoted = Array.TrueForAll(gates, gate => gate.IsPassed || gate.IsOverridden);
            if (isPromoted)
                Promote(model, number, reason);
            return new(isPromoted, gates, ChampionOrNull(model));
        }
    }

    /// <inheritdoc/>
    public async Task<RollbackResult> RollBackAsync(string model, string reason, int? champion = null, CancellationToken cancellationToken = default)
    {
        ArgumentNullException.ThrowIfNull(model);
        ArgumentNullException.ThrowIfNull(reason);
        await BeginAsync(cancellationToken).ConfigureAwait(false);
        lock (_gate)
        {
            if (!_champions.TryGetValue(model, out var champions) || champions.Count < 2)
                throw Error($"{model} has no previous champion; promote two versions first");
            if (champion is { } expected && expected != champions.Peek())
                throw Error($"the champion of {model} is {champions.Peek()}, not {expected}");
            var current = champions.Pop();
            _changes.Add(new(model, champions.Peek(), reason));
            return new(champions.Peek(), current);
        }
    }

    private static QuantraException Error(FormattableString message) => new QuantraError(
        QuantraStatus.FailedPrecondition, QuantraReason.ConfigurationInvalid, message.ToString(CultureInfo.InvariantCulture)).ToException();

    private static (string Model, int Version) VersionOf(ModelReference reference) =>
        reference.Text.Split('@', 2) is [var model, var text] && int.TryParse(text, NumberStyles.None, CultureInfo.InvariantCulture, out var version)
            ? (model, version)
            : throw new QuantraError(QuantraStatus.InvalidArgument, QuantraReason.InvalidInput, $"{reference} is not NAME@VERSION").ToException();

    private int? ChampionOrNull(string model) => _champions.TryGetValue(model, out var champions) ? champions.Peek() : null;

    private void Promote(string model, int version, string reason)
    {
        if (!_champions.TryGetValue(model, out var champions))
            _champions[model] = champions = new();
        champions.Push(version);
        _changes.Add(new(model, version, reason));
    }

    private async Task BeginAsync(CancellationToken cancellationToken)
    {
        cancellationToken.ThrowIfCancellationRequested();
        await BeforeCall(cancellationToken).ConfigureAwait(false);
        if (Failure is { } failure)
            throw failure;
    }
}
