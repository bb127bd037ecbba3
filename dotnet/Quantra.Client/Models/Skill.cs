namespace Quantra.Client;

/// <summary>How much smaller a model's loss was than its best rival's on days that it had not seen.</summary>
/// <param name="Rival">The best baseline on the same days.</param>
/// <param name="Improvement">As a share of the rival's loss: 0.01 is one per cent better.</param>
/// <param name="Lower">Lower end of the interval.</param>
/// <param name="Upper">Upper end of the interval.</param>
/// <param name="Level">Of the interval, such as 0.9.</param>
/// <param name="Verdict">Whether the improvement can be told from luck.</param>
/// <param name="Sentence">The same in words.</param>
/// <param name="DaysShort">Days that are lacking for any verdict; 0 = none.</param>
/// <param name="Line">A short line for people, the same at every door.</param>
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
    /// <returns>Such as "skill: not shown, improvement -0.4 % (90 %: -2.3 to +1.0 %) on held-out days against GARCH(1,1)-t".</returns>
    public override string ToString() => Line;

    /// <summary>The line that stands below every answer for people, also where nothing is known.</summary>
    /// <param name="skill">An answer's.</param>
    /// <returns><see cref="Line"/>, or words that nothing is known.</returns>
    public static string LineOf(Skill? skill) => skill?.Line ?? "skill: unknown, the model's card compares it with nothing";
}
