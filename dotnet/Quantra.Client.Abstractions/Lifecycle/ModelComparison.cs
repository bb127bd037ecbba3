namespace Quantra.Client;

/// <summary>A champion and a challenger, compared on the days that neither has seen in training.</summary>
public sealed record ModelComparison
{
    /// <summary>The champion as "NAME@VERSION".</summary>
    public required string Champion { get; init; }

    /// <summary>The challenger as "NAME@VERSION".</summary>
    public required string Challenger { get; init; }

    /// <summary>Whether the challenger may replace the champion.</summary>
    public required ComparisonDecision Decision { get; init; }

    /// <summary>What a promotion needs.</summary>
    public required string Need { get; init; }

    /// <summary>The result in words.</summary>
    public required string Sentence { get; init; }

    /// <summary>First decision day; null = no days.</summary>
    public required DateOnly? FirstSession { get; init; }

    /// <summary>Last decision day; null = no days.</summary>
    public required DateOnly? LastSession { get; init; }

    /// <summary>Number of decision days.</summary>
    public required int Days { get; init; }

    /// <summary>The compared symbols.</summary>
    public required IReadOnlyList<string> Symbols { get; init; }

    /// <summary>Fraction of the champion's loss: 0.01 is one per cent better; null = too few days.</summary>
    public required double? Improvement { get; init; }

    /// <summary>Lower bound of the improvement, which holds no matter how often you look; null = too few days.</summary>
    public required double? Lower { get; init; }

    /// <summary>Upper bound of the improvement, which holds no matter how often you look; null = too few days.</summary>
    public required double? Upper { get; init; }

    /// <summary>The whole result as JSON, as <c>quantra compare --json</c> prints it.</summary>
    public required string ResultJson { get; init; }

    /// <inheritdoc/>
    public bool Equals(ModelComparison? other) => other is not null && ValueEquality.AreEqual(Parts(), other.Parts());

    /// <inheritdoc/>
    public override int GetHashCode() => ValueEquality.Hash(Parts());

    /// <summary>Formats one line, the same in every culture.</summary>
    /// <returns>For example "small@2 against small@1 on 120 days: Undecided", with the result in words.</returns>
    public override string ToString() =>
        FormattableString.Invariant($"{Challenger} against {Champion} on {MessageFormat.Count(Days, "day")}: {Decision}; {Sentence}");

    private object?[] Parts() =>
    [
        Champion,
        Challenger,
        Decision,
        Need,
        Sentence,
        FirstSession,
        LastSession,
        Days,
        ValueEquality.Of(Symbols),
        Improvement,
        Lower,
        Upper,
        ResultJson,
    ];
}
