namespace Quantra.Client;

/// <summary>How much smaller a model's loss is than that of the best baseline, on held-out days.</summary>
/// <param name="Rival">The best baseline on the same days.</param>
/// <param name="Improvement">Fraction of the rival's loss: 0.01 is one per cent better.</param>
/// <param name="Lower">Lower end of the interval.</param>
/// <param name="Upper">Upper end of the interval.</param>
/// <param name="Level">Confidence level of the interval, for example 0.9.</param>
/// <param name="Verdict">Whether the improvement is statistically significant.</param>
/// <param name="Sentence">The verdict in words.</param>
/// <param name="DaysShort">How many more days a verdict needs; 0 = none.</param>
/// <param name="Line">A short line for display, the same from every client.</param>
public sealed record Skill(
    string Rival,
    double Improvement,
    double Lower,
    double Upper,
    double Level,
    SkillVerdict Verdict,
    string Sentence,
    int DaysShort,
    string Line)
{
    /// <inheritdoc cref="Line"/>
    /// <returns>For example "skill: not shown, improvement -0.4 % (90 %: -2.3 to +1.0 %) on held-out days against GARCH(1,1)-t".</returns>
    public override string ToString() => Line;

    /// <summary>Returns the line to show below every result, even if the skill is unknown.</summary>
    /// <param name="skill">Skill of a forecast or an attribution.</param>
    /// <returns><see cref="Line"/>, or a line for unknown skill.</returns>
    public static string LineOf(Skill? skill) => skill?.Line ?? "skill: unknown, the model's card has no baseline";
}
